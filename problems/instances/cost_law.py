"""Instances room: the law that random costs are drawn from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from balance.problems.instances.arguments import choice, flag, real, settings, several
from balance.problems.model.errors import OptionError
from balance.problems.model.tensors import FloatArray

DISTRIBUTIONS = ("lognormal", "uniform", "constant")


@dataclass(frozen=True)
class CostLaw:
    """How the costs of a random graph are drawn, each independently of all others.

    Every cost is its mean times a factor X of mean 1: log-normal, ``X = exp(N(-spread^2 / 2, spread^2))``; uniform on
    ``[1 - spread, 1 + spread]``; or constant, ``X = 1``.

    Parameters
    ----------
    distribution
        ``"lognormal"``, ``"uniform"`` or ``"constant"``.
    spread
        See above; at most 1 for the uniform distribution.
    mean_seconds
        Mean forward time of an operator.
    communication_ratio
        Mean time to move a tensor over a link of `bandwidth`, in units of `mean_seconds`.
    bandwidth
        Bytes per second of that link: tensors have ``communication_ratio mean_seconds bandwidth`` bytes in the mean.
    mean_parameter_bytes, mean_activation_bytes
        Means of what an operator holds; activations only when training.
    training
        A layer graph whose backward pass takes twice the forward pass, half of it for each part; otherwise inference.
    kinds
        Names of device kinds.
    kind_spread
        How far kinds differ: the times of each operator on each kind are multiplied by a log-normal factor of its own
        of mean 1 and this spread. 0: all kinds are alike.

    Raises
    ------
    OptionError
        If a value is out of range.
    """

    distribution: str = "lognormal"
    spread: float = 0.5
    mean_seconds: float = 1e-3
    communication_ratio: float = 0.2
    bandwidth: float = 1e10
    mean_parameter_bytes: float = 1e7
    mean_activation_bytes: float = 1e7
    training: bool = False
    kinds: tuple[str, ...] = ("device",)
    kind_spread: float = 0.0

    def __post_init__(self) -> None:
        choice("distribution", self.distribution, DISTRIBUTIONS)
        # Beyond a spread of 5 the mean of a log-normal sample says nothing any more.
        real("spread", self.spread, most=1.0 if self.distribution == "uniform" else 5.0)
        real("kind_spread", self.kind_spread, most=5.0)
        real("mean_seconds", self.mean_seconds, above=0.0)
        real("bandwidth", self.bandwidth, above=0.0)
        for name in ("communication_ratio", "mean_parameter_bytes", "mean_activation_bytes"):
            real(name, getattr(self, name))
        flag("training", self.training)
        names = several("kinds", self.kinds)
        if not all(isinstance(name, str) and name for name in names):
            raise OptionError(f"kinds must be names, got {names!r}")
        object.__setattr__(self, "kinds", names)

    def factors(self, rng: np.random.Generator, count: int) -> FloatArray:
        """Return `count` draws of X, shape (count,)."""
        if self.distribution == "constant":
            return np.ones(count)
        if self.distribution == "uniform":
            return rng.uniform(1.0 - self.spread, 1.0 + self.spread, count)
        return _lognormal(rng, self.spread, count)

    def draw(self, rng: np.random.Generator, operators: int, tensors: int) -> tuple[dict[str, Any], FloatArray]:
        """Return keyword arguments of `CostGraph` for the operators, and the bytes of the tensors, shape (tensors,)."""
        forward = self.mean_seconds * self.factors(rng, operators)
        sizes = self.communication_ratio * self.mean_seconds * self.bandwidth * self.factors(rng, tensors)
        parameters = self.mean_parameter_bytes * self.factors(rng, operators)
        activations = self.mean_activation_bytes * self.factors(rng, operators)
        times = np.tile(forward, (len(self.kinds), 1))
        if self.kind_spread:
            times *= _lognormal(rng, self.kind_spread, times.size).reshape(times.shape)
        tables: dict[str, Any] = {"forward": times, "kinds": self.kinds, "parameter_bytes": parameters}
        if self.training:
            tables |= {
                "backward": 2.0 * times,
                "backward_input": times,
                "backward_weight": times,
                "activation_bytes": activations,
                "sync_bytes": parameters,
            }
        return tables, sizes

    def to_json(self) -> dict[str, Any]:
        """Return the fields, for the source of a graph."""
        return {**asdict(self), "kinds": list(self.kinds)}


def cost_law(law: CostLaw | Mapping[str, Any] | str | None) -> CostLaw:
    """Return a law from one, from a mapping of its fields, from the name of its distribution, or the default law.

    Raises
    ------
    OptionError
        If a field or distribution is unknown (the nearest is named) or a value is out of range.
    """
    return CostLaw(distribution=law) if isinstance(law, str) else settings("law", CostLaw, law)


def _lognormal(rng: np.random.Generator, spread: float, count: int) -> FloatArray:
    return rng.lognormal(-0.5 * spread * spread, abs(spread), count)  # NumPy takes -0.0 for a negative spread
