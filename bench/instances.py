"""Bench room: the instances that campaigns run on, by name, made or read only when they are needed.

``tiny/`` is solved by everything in a moment, ``small/`` takes exact methods seconds to minutes; both are generated
from a seed. ``public/`` are published workloads, looked for below the folder named by the environment variable
DNN_BALANCE_WORKLOADS.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from balance.bench import regal
from balance.problems.instance import Instance
from balance.problems.model.cluster import Cluster, Device, Link
from balance.problems.model.errors import BalanceError, OptionError, ProblemError
from balance.problems.model.fields import nearest
from balance.problems.model.graph import CostGraph
from balance.problems.model.problem import Problem

VARIABLE = "DNN_BALANCE_WORKLOADS"


class SkippedError(BalanceError):
    """An instance that is not on this machine; the message says what is missing."""


@dataclass(frozen=True, kw_only=True)
class BenchInstance:
    """An instance that campaigns know by name.

    Parameters
    ----------
    name
        ``group/what``, unique.
    about
        One sentence: what it is, where it comes from, under which licence if it is not ours.
    load
        Makes or reads it; raises `SkippedError` when it is not on this machine.
    parameters
        By problem name: parameters to state that problem with, instead of its defaults. A problem that is mapped to
        None is not asked of this instance.
    """

    name: str
    about: str
    load: Callable[[], Instance]
    parameters: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)

    def problem(self, name: str) -> Problem | None:
        """State the problem of a name on this instance; None when it cannot be stated on it.

        Raises
        ------
        SkippedError
            If the instance is not on this machine.
        OptionError
            If there is no such problem.
        """
        kinds = {kind.name: kind for kind in problem_types()}
        if name not in kinds:
            raise OptionError(f"there is no problem {name!r}{nearest(name, kinds)}")
        given = self.parameters.get(name, {})
        if given is None:
            return None
        instance = self.load()
        if instance.cluster is None:
            return None
        known = kinds[name].parameters()
        preset = kinds[name].presets.get(instance.preset or "", {})
        inherited = {key: value for key, value in {**preset, **instance.parameters}.items() if key in known}
        try:
            return kinds[name](graph=instance.graph, cluster=instance.cluster, **{**inherited, **given})
        except ProblemError:
            return None


def problem_types() -> list[type[Problem]]:
    """Return the class of every registered problem, in order of name."""
    from balance import list_problems

    return list(list_problems())


@cache
def list_instances(prefix: str = "") -> tuple[BenchInstance, ...]:
    """Return every instance whose name starts with `prefix`, in order of name."""
    found = sorted((*_generated(), *_regal(), *_public()), key=lambda instance: instance.name)
    return tuple(instance for instance in found if instance.name.startswith(prefix))


def find_instance(name: str) -> BenchInstance:
    """Return the instance of a name.

    Raises
    ------
    OptionError
        If there is none; the message names the nearest.
    """
    known = {instance.name: instance for instance in list_instances()}
    if name not in known:
        raise OptionError(f"there is no instance {name!r}{nearest(name, known)}")
    return known[name]


# -- generated -------------------------------------------------------------------------------------------------------

_LINK = Link(latency=2e-5, bandwidth=1e10)


def _layers(n: int, seed: int) -> CostGraph:
    """Return a training chain with times, transfers and memory as a network's layers have them, and names."""
    rng = np.random.default_rng(seed)
    forward = rng.lognormal(-7.0, 0.8, n)
    return CostGraph.chain(
        forward,
        backward=forward * rng.uniform(1.6, 2.4, n),
        bytes=rng.lognormal(15.0, 1.0, n - 1),
        parameter_bytes=rng.lognormal(16.0, 1.0, n),
        activation_bytes=rng.lognormal(16.0, 0.7, n),
        name=f"layers-{n}-{seed}",
    )


def _plain(n: int, seed: int) -> CostGraph:
    """Return a chain without transfers."""
    return CostGraph.chain(np.random.default_rng(seed).exponential(1e-3, n), name=f"plain-{n}-{seed}")


def _different(p: int, seed: int) -> Cluster:
    speeds = np.random.default_rng(seed).uniform(0.5, 2.0, p)
    return Cluster([Device(speed=float(speed)) for speed in speeds], link=_LINK)


def _kinds(p: int, *, memory_bytes: float = float("inf")) -> Cluster:
    """Return p devices of two speeds in turn."""
    return Cluster([Device(speed=2.0 if i % 2 else 1.0, memory_bytes=memory_bytes) for i in range(p)], link=_LINK)


def _equal(p: int, *, memory_bytes: float = float("inf")) -> Cluster:
    return Cluster([Device(memory_bytes=memory_bytes)] * p, link=_LINK)


def _tight(graph: CostGraph, p: int) -> float:
    """Return a memory per device that 1F1B's in-flight micro-batches make scarce: some even splits do not fit."""
    parameters, activations = float(graph.parameter_bytes.sum()), float(graph.activation_bytes.sum())
    return 1.3 * (parameters + (p + 1) / 2 * activations) / p


def _generated() -> list[BenchInstance]:
    found = []
    for group, sizes in (("tiny", ((6, 2), (9, 3))), ("small", ((60, 8), (200, 16)))):
        for n, p in sizes:
            for name, about, make, parameters in _families(n, p):
                found.append(
                    BenchInstance(
                        name=f"{group}/{name}-{n}x{p}",
                        about=f"{about}, {n} operators over {p} devices",
                        load=make,
                        parameters=parameters,
                    )
                )
    return found


def _regal() -> list[BenchInstance]:
    return [
        BenchInstance(
            name=f"regal/{name}",
            about=about,
            load=partial(regal.build, name),
            parameters={"chain": None},
        )
        for name, about in regal.names()
    ]


def _families(n: int, p: int) -> list[tuple[str, str, Callable[[], Instance], dict[str, dict[str, Any] | None]]]:
    def of(graph: Callable[[], CostGraph], cluster: Callable[[CostGraph], Cluster]) -> Callable[[], Instance]:
        def make() -> Instance:
            built = graph()
            return Instance(built, cluster(built), name=built.name)

        return make

    layers = partial(_layers, n, n)
    return [
        ("plain", "chain without transfers, equal devices", of(lambda: _plain(n, n), lambda _: _equal(p)), {}),
        ("layers", "training chain with transfers, equal devices", of(layers, lambda _: _equal(p)), {}),
        (
            "memory",
            "training chain with scarce memory under 1F1B, equal devices",
            of(layers, lambda graph: _equal(p, memory_bytes=_tight(graph, p))),
            {},
        ),
        (
            "ordered",
            "training chain with transfers, different devices in a given order",
            of(layers, lambda _: _different(p, p)),
            {"chain": {"device_order": "given"}},
        ),
        (
            "kinds",
            "training chain with transfers, devices of two speeds in free order",
            of(layers, lambda _: _kinds(p)),
            {"chain": {"device_order": "free"}},
        ),
    ]


# -- published -------------------------------------------------------------------------------------------------------

_PIPEDREAM = "profile of PipeDream (SOSP 2019), repository msr-fiddle/pipedream, MIT licence"
_PLACEMENT = "workload of Tarnawski et al. (NeurIPS 2020), repository msr-fiddle/dnn-partitioning, MIT licence"
_PIPER = "workload of Piper (NeurIPS 2021), repository msr-fiddle/piper, MIT licence"

# Name below public/ -> (file below the workloads' folder, what it is).
_FILES: dict[str, tuple[str, str]] = {
    **{
        f"pipedream/{name}": (f"pipedream/{name}.txt", f"{name}, {_PIPEDREAM}")
        for name in ("alexnet", "gnmt_large", "inception_v3", "resnet50", "vgg16")
    },
    **{
        f"throughput/{level}/{name}": (f"device-placement/throughput/{level}/{name}.json", f"{name}, {_PLACEMENT}")
        for level, names in (
            (
                "layer",
                (
                    "bert24_inference",
                    "bert24_training",
                    "gnmt_inference",
                    "inceptionv3_inference",
                    "resnet50_inference",
                ),
            ),
            ("operator", ("bert_l-3_inference", "bert_l-3_training", "bert_l-6_training", "resnet50_training")),
        )
        for name in names
    },
    **{
        f"latency/{level}/{name}": (f"device-placement/latency/{level}/{name}.json", f"{name}, {_PLACEMENT}")
        for level, names in (
            ("layer", ("bert24_inference", "resnet50_inference")),
            ("operator", ("bert_l-3_inference", "bert_l-6_inference")),
        )
        for name in names
    },
    "piper/bert32a100": ("piper/bert32a100.json", f"BERT-32 on A100, {_PIPER}"),
}


def _public() -> list[BenchInstance]:
    return [
        BenchInstance(name=f"public/{name}", about=about, load=partial(_read, file))
        for name, (file, about) in _FILES.items()
    ]


def _read(file: str) -> Instance:
    """Read a published workload; one without devices of its own gets 8 equal ones with 25 GB/s between them."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        raise SkippedError(f"skipped: {file} is a public workload; set {VARIABLE} to the folder that holds it")
    path = Path(folder, file)
    if not path.is_file():
        raise SkippedError(f"skipped: {VARIABLE}={folder} holds no {file}")
    from dataclasses import replace

    from balance.problems.formats import read

    instance = read(path)
    if instance.cluster is None and len(instance.graph.kinds) == 1:
        cluster = Cluster.uniform(8, kind=instance.graph.kinds[0], latency=0.0, bandwidth=25e9)
        return replace(instance, cluster=cluster)
    return instance
