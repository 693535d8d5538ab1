"""Instances room: generators of cost graphs, and the catalogue of device kinds that their costs are for.

A generator is a function of this room that `list_generators` lists; its arguments are all by keyword, and it returns
a `CostGraph`. `generate` calls one by name, for the command line.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from balance.problems.instances.catalogue import (
    DeviceKind,
    catalogue_device,
    catalogue_devices,
    device_kind,
    list_device_kinds,
)
from balance.problems.instances.convnet import resnet, vgg
from balance.problems.instances.cost_law import CostLaw
from balance.problems.instances.random_graphs import (
    attention_dag,
    fork_join,
    layered_dag,
    random_chain,
    random_order_dag,
    random_tree,
    series_parallel,
)
from balance.problems.instances.roofline import Roofline
from balance.problems.instances.shapes import PUBLISHED_MODELS, PublishedModel, TransformerShape, published_model
from balance.problems.instances.transformer import language_model, shape_graph, transformer
from balance.problems.model.errors import OptionError
from balance.problems.model.fields import nearest
from balance.problems.model.graph import CostGraph

__all__ = [
    "PUBLISHED_MODELS",
    "CostLaw",
    "DeviceKind",
    "Generator",
    "PublishedModel",
    "Roofline",
    "TransformerShape",
    "attention_dag",
    "catalogue_device",
    "catalogue_devices",
    "device_kind",
    "fork_join",
    "generate",
    "language_model",
    "layered_dag",
    "list_device_kinds",
    "list_generators",
    "published_model",
    "random_chain",
    "random_order_dag",
    "random_tree",
    "resnet",
    "series_parallel",
    "shape_graph",
    "transformer",
    "vgg",
]


@dataclass(frozen=True)
class Generator:
    """A generator of cost graphs.

    Parameters
    ----------
    name
        What `generate` calls it.
    make
        The function.
    """

    name: str
    make: Callable[..., CostGraph] = field(repr=False)

    @property
    def about(self) -> str:
        """First line of the function's docstring."""
        return (inspect.getdoc(self.make) or "").partition("\n")[0]

    @property
    def parameters(self) -> dict[str, Any]:
        """Names of the arguments with their defaults; `inspect.Parameter.empty` marks one that must be given."""
        return {p.name: p.default for p in inspect.signature(self.make).parameters.values()}


def list_generators() -> tuple[Generator, ...]:
    """Return every generator in order of name."""
    makers: tuple[Callable[..., CostGraph], ...] = (
        attention_dag,
        fork_join,
        language_model,
        layered_dag,
        random_chain,
        random_order_dag,
        random_tree,
        resnet,
        series_parallel,
        transformer,
        vgg,
    )
    return tuple(Generator(make.__name__, make) for make in makers)


def generate(name: str, parameters: Mapping[str, Any] | None = None) -> CostGraph:
    """Return the graph of a generator, by name.

    Parameters
    ----------
    name
        As in `list_generators`.
    parameters
        Its arguments by name.

    Raises
    ------
    OptionError
        If there is no such generator or argument (the nearest is named), an argument is missing, or the generator
        refuses a value.

    Examples
    --------
    >>> generate("random_chain", {"operators": 5, "seed": 1}).n_operators
    5
    """
    known = {generator.name: generator for generator in list_generators()}
    if not isinstance(name, str) or name not in known:
        raise OptionError(f"there is no generator {name!r}{nearest(str(name), known)}", option=name)
    given = dict(parameters or {})
    takes = known[name].parameters
    for key in given:
        if key not in takes:
            raise OptionError(f"{name} has no parameter {key!r}{nearest(str(key), takes)}", option=key)
    missing = [key for key, default in takes.items() if default is inspect.Parameter.empty and key not in given]
    if missing:
        raise OptionError(f"{name} needs a value for {', '.join(missing)}", option=missing[0])
    return known[name].make(**given)
