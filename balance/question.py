"""Front door: from a graph, devices and an objective to the formal problem that is asked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from balance.problems.instance import Instance
from balance.problems.model.cluster import Cluster, Device
from balance.problems.model.errors import LinearisationError, OptionError, ProblemError
from balance.problems.model.fields import nearest
from balance.problems.model.graph import CostGraph
from balance.problems.model.problem import Problem

OBJECTIVES: dict[str, str] = {
    "bottleneck": "seconds of the busiest device per micro-batch",
    "fw-bw-bottleneck": "largest forward plus largest backward seconds per micro-batch",
    "step-time": "seconds of a synchronous step, simulated",
    "cost": "price per sample",
    "latency": "seconds from the start of one sample to its end",
}
"""What the objectives of the front door mean. Problems say by `Problem.objectives` which of them they answer."""

MOST_DEVICES = 1_000_000
"""Largest number of devices that may be asked for as a number; more is taken for a slip."""

Question = Problem | CostGraph | Instance | str | Path
Devices = int | Sequence[Device] | Cluster


def refuse_unknown(unknown: Mapping[str, Any], known: Sequence[str], function: str) -> None:
    """Raise for the first option that a function does not know.

    Raises
    ------
    OptionError
        Naming the nearest known option.
    """
    for name in unknown:
        raise OptionError(f"{function}() has no option {name!r}{nearest(name, known)}", option=name)


def names_of(value: object, option: str) -> list[str]:
    """Return a list of names without repetitions, in order.

    Raises
    ------
    OptionError
        If it is something else.
    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise OptionError(f"{option} must be a list of names, got {value!r}", option=option)
    names = list(value)
    for name in names:
        if not isinstance(name, str):
            raise OptionError(f"{option} must be a list of names, got {name!r} in it", option=option)
    return list(dict.fromkeys(names))


def pose(
    what: Question,
    devices: Devices | None,
    *,
    objective: str | None,
    bandwidth: float | None,
    latency: float | None,
    parameters: Mapping[str, Any],
    preset: str | None = None,
) -> tuple[Problem, tuple[str, ...]]:
    """Return the problem that is asked, and what its reader should know.

    Parameters
    ----------
    what
        A problem (then nothing else may be given), a graph, an instance, or the path of a file.
    devices
        A number, a list or a cluster; None: the instance's own.
    objective
        A key of `OBJECTIVES`, or one of another distribution; None: the instance's own, else ``"bottleneck"``.
    bandwidth, latency
        Of a link between any two devices.
    parameters
        Parameters of the problem by name; None values are left to the instance or to the default.
    preset
        A published cost model that some problem knows; None: the instance's own, if it has one.

    Raises
    ------
    BalanceError
        If this states no problem; the message says what is missing.
    """
    given = {key: value for key, value in parameters.items() if value is not None}
    if isinstance(given.get("free_kinds"), str):  # one kind, not its letters
        given["free_kinds"] = (given["free_kinds"],)
    if isinstance(what, Problem):
        extra = {"devices": devices, "objective": objective, "bandwidth": bandwidth, "latency": latency}
        extra |= {"preset": preset, **given}
        for key, value in extra.items():
            if value is not None:
                raise OptionError(
                    f"{key}= is part of the problem, which is stated already: use dataclasses.replace(problem, ...)",
                    option=key,
                )
        return what, ()
    instance = _instance(what)
    inherited = dict(instance.parameters)
    own = inherited.pop("objective", None)
    asked = objective if objective is not None else own if own is not None else "bottleneck"
    cluster = _cluster(instance, devices, bandwidth, latency)
    label, meant = _preset(preset, instance)
    if preset is not None:
        inherited = {}  # the instance's parameters are those of its own preset
    notes = list(instance.notes)
    if devices is None and instance.preset:
        notes.append(f"devices and parameters are those of preset {instance.preset!r}")
    if bandwidth is not None and _all_timed(instance.graph):
        notes.append("bandwidth and latency change nothing: every tensor of the graph comes with seconds, which win")
    problem, unused = _state(asked, instance.graph, cluster, given, inherited, label, meant)
    notes.extend(
        f"problem {problem.name!r} has no parameter {key!r}; the instance's value is left out" for key in unused
    )
    return problem, tuple(notes)


def _all_timed(graph: CostGraph) -> bool:
    """Whether every tensor has given seconds, so that no link is ever asked."""
    return bool(len(graph.tensors)) and not bool(np.isnan(graph.tensors.seconds).any())


def _instance(what: object) -> Instance:
    if isinstance(what, Instance):
        return what
    if isinstance(what, CostGraph):
        return Instance(what, name=what.name)
    if isinstance(what, (str, Path)):
        from balance.problems.formats import read

        return read(what)
    raise OptionError(
        f"expected a CostGraph, an Instance, a Problem or the path of a file, got {type(what).__name__}; "
        f"see CostGraph.from_networkx and balance.executor.profile for other sources"
    )


def _cluster(instance: Instance, devices: object, bandwidth: float | None, latency: float | None) -> Cluster:
    """Return the devices that are meant, with the links that are known."""
    own = instance.cluster
    if devices is None:
        if own is None:
            raise OptionError("say over which devices: a number, a list of Device, or a Cluster")
        cluster = own
    elif isinstance(devices, Cluster):
        cluster = devices
    elif isinstance(devices, (int, np.integer)) and not isinstance(devices, bool):
        cluster = _equal_devices(instance, int(devices))
    elif isinstance(devices, Sequence) and not isinstance(devices, str):
        strange = next((device for device in devices if not isinstance(device, Device)), None)
        if strange is not None:
            raise OptionError(f"devices holds {strange!r}; give Device objects, a number, or a Cluster")
        link = own.inter if own is not None and own.links == "uniform" else None
        cluster = Cluster(devices, link=link)
    else:
        raise OptionError(f"devices must be a number, a list of Device or a Cluster, got {devices!r}")
    return linked(cluster, bandwidth, latency)


def linked(cluster: Cluster, bandwidth: float | None, latency: float | None) -> Cluster:
    """Return a cluster with one link between any two devices, or as it is if neither figure is given.

    Raises
    ------
    OptionError
        If there is a latency without a bandwidth, or a figure is out of range.
    """
    if bandwidth is None:
        if latency is None:
            return cluster
        raise OptionError(
            "latency= alone leaves the bandwidth unknown: give bandwidth= too (bytes per second; inf is a value)"
        )
    if not _is_real(bandwidth) or not bandwidth > 0:
        raise OptionError(f"bandwidth must be positive, in bytes per second, got {bandwidth!r}", option="bandwidth")
    if latency is not None and (not _is_real(latency) or not 0 <= latency < math.inf):
        raise OptionError(f"latency must be finite seconds, not negative, got {latency!r}", option="latency")
    return cluster.with_link(latency=latency, bandwidth=bandwidth)


def _is_real(value: object) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _equal_devices(instance: Instance, count: int) -> Cluster:
    kinds = instance.graph.kinds
    if count < 1:
        raise OptionError(f"devices must be at least 1, got {count}", option="devices")
    if count > MOST_DEVICES:
        raise OptionError(f"devices must be at most {MOST_DEVICES}, got {count}", option="devices")
    if len(kinds) > 1:
        raise OptionError(
            f"devices={count} is not clear: the graph has costs for several kinds ({', '.join(kinds)}); give a list, "
            f"such as [Device(kind={kinds[0]!r})] * {count}",
            option="devices",
        )
    own = instance.cluster
    link = own.inter if own is not None and own.links == "uniform" else None
    if link is None:
        return Cluster.uniform(count, kind=kinds[0])
    return Cluster.uniform(count, kind=kinds[0], latency=link.latency, bandwidth=link.bandwidth)


def _preset(name: str | None, instance: Instance) -> tuple[str, tuple[type[Problem], ...]]:
    """Return the preset that is meant, and the problems that know it: none without one."""
    from balance.registry import list_problems

    known = list(dict.fromkeys(key for kind in list_problems() for key in kind.presets))
    if name is not None and name not in known:
        raise OptionError(f"there is no preset {name!r}{nearest(str(name), known)}", option="preset")
    label = name or instance.preset or ""  # what only says where a file comes from is no preset of a problem
    return label, tuple(kind for kind in list_problems() if label in kind.presets)


def _answering(objective: str) -> list[type[Problem]]:
    """Return the problems that answer an objective, the one to try first first."""
    from balance.registry import list_problems

    able = [kind for kind in list_problems() if objective in kind.objectives]
    return sorted(able, key=lambda kind: (kind.objectives[objective], kind.name))


def _state(
    objective: str,
    graph: CostGraph,
    cluster: Cluster,
    given: Mapping[str, Any],
    inherited: Mapping[str, Any],
    preset: str,
    meant: Sequence[type[Problem]],
) -> tuple[Problem, list[str]]:
    """Return the problem behind an objective, and the instance's parameters that it does not have."""
    from balance.registry import list_problems

    answered = list(dict.fromkeys(key for kind in list_problems() for key in kind.objectives))
    known = list(dict.fromkeys((*OBJECTIVES, *answered)))
    if objective not in known:
        raise OptionError(f"there is no objective {objective!r}{nearest(str(objective), known)}", option="objective")
    able = _answering(objective)
    if not able:
        raise ProblemError(
            f"objective {objective!r} ({OBJECTIVES[objective]}) has no problem in this version; it answers "
            f"{', '.join(answered)}",
            objective=objective,
        )
    if meant:
        able = [kind for kind in able if kind in meant]
        if not able:
            raise OptionError(
                f"preset {preset!r} is one of problem {meant[0].name!r}, which does not answer objective {objective!r}",
                option="preset",
            )
    before = ""
    for kind in able:
        own = kind.parameters()
        values = {"objective": objective} if "objective" in own else {}
        values |= kind.presets.get(preset, {})
        values |= {key: value for key, value in inherited.items() if key in own}
        unfit = next((key for key in given if key not in own), None)
        try:
            if unfit is not None:
                raise OptionError(
                    f"problem {kind.name!r} has no parameter {unfit!r}{nearest(unfit, own)}", option=unfit
                )
            problem = kind(graph=graph, cluster=cluster, **{**values, **given})
        except (LinearisationError, OptionError) as error:
            if kind is not able[-1]:
                before = f" (problem {kind.name!r} does not apply: {error})"
                continue
            if not before:
                raise
            raise type(error)(f"{error}{before}") from error
        except TypeError as error:
            raise ProblemError(f"problem {kind.name!r} cannot be stated: {error}") from error
        return problem, [key for key in inherited if key not in own]
    raise AssertionError("the last problem is returned or its error raised")
