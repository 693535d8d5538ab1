"""Front door: from a graph, devices and an objective to the formal problem that is asked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from balance.problems.instance import Instance
from balance.problems.model.cluster import Cluster, Device
from balance.problems.model.errors import LinearisationError, OptionError, ProblemError
from balance.problems.model.fields import nearest
from balance.problems.model.graph import CostGraph
from balance.problems.model.problem import Problem

OBJECTIVES: dict[str, tuple[str, ...]] = {
    "bottleneck": ("chain", "cut"),
    "fw-bw-bottleneck": ("chain", "cut"),
    "step-time": ("pipeline",),
    "cost": ("pipeline",),
    "latency": ("latency",),
}
"""Objective to the problems that answer it, the one to try first first."""

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
        A key of `OBJECTIVES`; None: the instance's own, else ``"bottleneck"``.
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
    meant = _preset(preset, instance)
    if meant is not None:
        inherited = {**meant.presets[preset or str(instance.preset)], **({} if preset else inherited)}
    notes = list(instance.notes)
    if devices is None and instance.preset:
        notes.append(f"devices and parameters are those of preset {instance.preset!r}")
    problem, unused = _state(asked, instance.graph, cluster, given, inherited, meant)
    notes.extend(
        f"problem {problem.name!r} has no parameter {key!r}; the instance's value is left out" for key in unused
    )
    return problem, tuple(notes)


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
    if not isinstance(bandwidth, (int, float, np.number)) or not bandwidth > 0:
        raise OptionError(f"bandwidth must be positive, in bytes per second, got {bandwidth!r}", option="bandwidth")
    if latency is not None and (not isinstance(latency, (int, float, np.number)) or not 0 <= latency < math.inf):
        raise OptionError(f"latency must be finite seconds, not negative, got {latency!r}", option="latency")
    return cluster.with_link(latency=latency, bandwidth=bandwidth)


def _equal_devices(instance: Instance, count: int) -> Cluster:
    kinds = instance.graph.kinds
    if count < 1:
        raise OptionError(f"devices must be at least 1, got {count}", option="devices")
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


def _preset(name: str | None, instance: Instance) -> type[Problem] | None:
    """Return the problem whose preset is meant, None without one."""
    from balance.registry import list_problems

    known = {key: kind for kind in list_problems() for key in kind.presets}
    if name is None:
        return known.get(instance.preset or "")  # what only says where a file comes from is no preset of a problem
    if name not in known:
        raise OptionError(f"there is no preset {name!r}{nearest(str(name), known)}", option="preset")
    return known[name]


def _state(
    objective: str,
    graph: CostGraph,
    cluster: Cluster,
    given: Mapping[str, Any],
    inherited: Mapping[str, Any],
    meant: type[Problem] | None,
) -> tuple[Problem, list[str]]:
    """Return the problem behind an objective, and the instance's parameters that it does not have."""
    from balance.registry import list_problems

    if objective not in OBJECTIVES:
        raise OptionError(
            f"there is no objective {objective!r}{nearest(str(objective), OBJECTIVES)}", option="objective"
        )
    registered = {kind.name: kind for kind in list_problems()}
    able = [registered[name] for name in OBJECTIVES[objective] if name in registered]
    if meant is not None:
        if meant not in able:
            raise OptionError(
                f"the preset is one of problem {meant.name!r}, which does not answer objective {objective!r}",
                option="preset",
            )
        able = [meant]
    if not able:
        answered = [key for key, names in OBJECTIVES.items() if any(name in registered for name in names)]
        raise ProblemError(
            f"objective {objective!r} is answered by problem {OBJECTIVES[objective][0]!r}, which this version does not "
            f"have; it answers {', '.join(answered)}",
            objective=objective,
        )
    before = ""
    for kind in able:
        known = kind.parameters()
        values = {"objective": objective} if "objective" in known else {}
        values |= {key: value for key, value in inherited.items() if key in known}
        unfit = next((key for key in given if key not in known), None)
        try:
            if unfit is not None:
                raise OptionError(
                    f"problem {kind.name!r} has no parameter {unfit!r}{nearest(unfit, known)}", option=unfit
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
        return problem, [key for key in inherited if key not in known]
    raise AssertionError("the last problem is returned or its error raised")
