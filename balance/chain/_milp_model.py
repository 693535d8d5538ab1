"""Chain wing: the assignment model of `balance.chain.milp` in PuLP, one group of constraints a method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from balance.chain.tables import ChainTables
from balance.problems.chain import ChainProblem
from balance.problems.model.plan import Plan
from balance.problems.model.tensors import IntArray
from balance.problems.model.traffic import BACKWARD, FORWARD, charges

if TYPE_CHECKING:
    import pulp


@dataclass(eq=False)
class Model:
    """A PuLP model of a chain problem and how to read its solution."""

    problem: pulp.LpProblem
    tables: ChainTables
    groups: int
    items: dict[tuple[int, int], Any] = field(default_factory=dict)  # x[l, u]
    homes: dict[tuple[int, int], Any] = field(default_factory=dict)  # a[g, d]
    flags: dict[int, Any] = field(default_factory=dict)  # r[u]

    def plan(self, values: Mapping[str, float]) -> Plan:
        """Return the plan behind variable values by name; binaries are rounded, then everything is re-evaluated."""
        n, count = self.tables.n, self.tables.problem.cluster.n_devices
        slots = 1 + max(u for _, u in self.items)
        slot = [_largest(values, [self.items[item, u] for u in range(slots)]) for item in range(n)]
        cuts, devices, recompute = [0], [], []
        for item in range(1, n + 1):
            if item == n or slot[item] != slot[item - 1]:
                u = slot[item - 1]
                group = _group(u, self.groups)
                devices.append(_largest(values, [self.homes[group, d] for d in range(count)]))
                mode = self.tables.problem.recompute
                chosen = mode == "choose" and values.get(self.flags[u].name, 0.0) > 0.5
                recompute.append(mode == "always" or chosen)
                cuts.append(item)
        return self.tables.plan(cuts, devices, recompute)


def _largest(values: Mapping[str, float], variables: list[Any]) -> int:
    """Return the place of the variable with the largest value; PuLP leaves out unused variables: 0."""
    found = [values.get(variable.name, 0.0) for variable in variables]
    return found.index(max(found))


def _group(u: int, groups: int) -> int:
    """Return the device group of slot u: slots a whole round apart share a device."""
    return u % groups


def formulate(problem: ChainProblem, groups: int) -> Model:
    r"""Build the model with `groups` devices' worth of slots (and ``chunks`` rounds over them).

    .. math::

        \min T \quad (\text{or } T_F + T_B), \qquad \sum_u x_{lu} = 1, \quad \sum_d a_{gd} \le 1, \quad \sum_g a_{gd}
        \le 1,

    order: :math:`\sum_{u' \ge u} x_{lu'} \ge \sum_{u' \ge u} x_{l+1,u'}`; loads: for every group, compute
    :math:`\sum_{l,d} w_{ld} z_{lud}` plus boundary (or direct) communication at most T; memory per group.
    """
    import pulp

    tables = ChainTables(problem)
    n, p, slots = tables.n, problem.cluster.n_devices, groups * problem.chunks
    lp = pulp.LpProblem("chain", pulp.LpMinimize)
    model = Model(lp, tables, groups)
    build = _Builder(model, lp, slots)
    for item in range(n):
        for u in range(slots):
            model.items[item, u] = build.binary(f"x_{item}_{u}")
    for g in range(groups):
        for d in range(p):
            model.homes[g, d] = build.binary(f"a_{g}_{d}")
    if problem.recompute == "choose":
        model.flags = {u: build.binary(f"r_{u}") for u in range(slots)}
    build.order()
    build.devices()
    build.loads()
    if tables.limited:
        build.memory()
    return model


class _Builder:
    """Adds one group of constraints after the other to a model."""

    def __init__(self, model: Model, lp: pulp.LpProblem, slots: int) -> None:
        self.model, self.lp, self.slots = model, lp, slots
        self.tables, self.problem = model.tables, model.tables.problem
        self.n, self.p, self.groups = self.tables.n, self.problem.cluster.n_devices, model.groups
        self._starts: dict[tuple[int, int], Any] = {}
        self._ends: dict[tuple[int, int], Any] = {}

    def binary(self, name: str) -> Any:
        """Add a binary variable."""
        import pulp

        return self.lp.add_variable(name, 0, 1, pulp.LpBinary)

    def real(self, name: str, most: float | None = None) -> Any:
        """Add a continuous variable that is not negative."""
        return self.lp.add_variable(name, 0, most)

    def sum(self, terms: Any) -> Any:
        """Return a linear expression."""
        import pulp

        return pulp.lpSum(terms)

    def opened(self, u: int) -> Any:
        """Whether slot u holds a stage: its group has a device."""
        return self.sum(self.model.homes[_group(u, self.groups), d] for d in range(self.p))

    def order(self) -> None:
        """Put items in one slot each, slots in order, no empty slot between used ones."""
        x = self.model.items
        for item in range(self.n):
            self.lp += self.sum(x[item, u] for u in range(self.slots)) == 1
            for u in range(self.slots):
                self.lp += x[item, u] <= self.opened(u)
            if item + 1 < self.n:
                for u in range(1, self.slots):
                    self.lp += self.sum(x[item, k] - x[item + 1, k] for k in range(u, self.slots)) >= 0
        for u in range(self.slots):
            self.lp += self.sum(x[item, u] for item in range(self.n)) >= self.opened(u)

    def devices(self) -> None:
        """Put slot groups on different devices, in the asked order; groups are used from the pipeline's end on."""
        a = self.model.homes
        for g in range(self.groups):
            self.lp += self.sum(a[g, d] for d in range(self.p)) <= 1
            if self.problem.chunks > 1:
                self.lp += self.sum(a[g, d] for d in range(self.p)) >= 1
        for d in range(self.p):
            self.lp += self.sum(a[g, d] for g in range(self.groups)) <= 1
            if not self.problem.idle:
                self.lp += self.sum(a[g, d] for g in range(self.groups)) >= 1
        for g in range(self.groups - 1):
            later = self.sum(a[g, d] for d in range(self.p))
            earlier = self.sum(a[g + 1, d] for d in range(self.p))
            self.lp += later >= earlier
            if self.problem.device_order == "given":
                place = self.sum(d * (a[g, d] - a[g + 1, d]) for d in range(self.p))
                self.lp += place >= 1 - self.p * (1 - earlier)

    def products(self) -> dict[tuple[int, int, int], Any]:
        """Return z[l, u, d] = x[l, u] a[group(u), d]; zero where the device cannot host the item."""
        x, a = self.model.items, self.model.homes
        barred = np.diff(self.tables.barred, axis=1) > 0
        z = {}
        for item in range(self.n):
            for u in range(self.slots):
                for d in range(self.p):
                    most = 0.0 if barred[self.tables.device_class[d], item] else 1.0
                    z[item, u, d] = self.real(f"z_{item}_{u}_{d}", most)
                    self.lp += z[item, u, d] <= a[_group(u, self.groups), d]
                self.lp += self.sum(z[item, u, d] for d in range(self.p)) == x[item, u]
        return z

    def loads(self) -> None:
        """Add loads per device group and phase, and the objective."""
        z = self.products()
        forward, backward = (np.diff(table, axis=1) for table in self.tables.seconds)
        classes: IntArray = self.tables.device_class
        compute: list[list[Any]] = [[], []]
        for u in range(self.slots):
            cells = [(item, d) for item in range(self.n) for d in range(self.p)]
            ahead = self.sum(float(forward[classes[d], item]) * z[item, u, d] for item, d in cells)
            back = self.sum(float(backward[classes[d], item]) * z[item, u, d] for item, d in cells)
            if self.problem.recompute == "always":
                back = back + ahead
            elif self.problem.recompute == "choose":
                again = self.real(f"again_{u}")
                self.lp += again >= ahead - float(forward.sum(axis=1).max()) * (1 - self.model.flags[u])
                back = back + again
            compute[FORWARD].append(ahead)
            compute[BACKWARD].append(back)
        received, sent = self.communication()
        both = self.problem.objective == "bottleneck"
        tops = [self.real("T")] if both else [self.real("T_forward"), self.real("T_backward")]
        for g in range(self.groups):
            mine = [u for u in range(self.slots) if _group(u, self.groups) == g]
            for top, phases in zip(tops, [(FORWARD, BACKWARD)] if both else [(FORWARD,), (BACKWARD,)], strict=True):
                parts = [
                    self.sum(side[phase][u] for phase in phases for u in mine) for side in (received, compute, sent)
                ]
                rows = [self.sum(parts)] if self.problem.overlap == "sum" else parts
                for row in rows:
                    self.lp += row <= top
        self.lp += self.sum(tops)

    def communication(self) -> tuple[list[list[Any]], list[list[Any]]]:
        """Return seconds received and sent per phase and slot, as variables that the loads keep small."""
        names = ("in", "out")
        sides = [[[self.real(f"{name}_{phase}_{u}") for u in range(self.slots)] for phase in (0, 1)] for name in names]
        if self.problem.communicates and self.slots > 1:
            if self.problem.routing == "direct":
                self._direct(sides)
            else:
                self._adjacent(sides)
        return sides[0], sides[1]

    def _free(self, u: int) -> Any:
        """Whether slot u is on a device that pays for no communication."""
        paying = [d for d in range(self.p) if not self.tables.pays(d)]
        return self.sum(self.model.homes[_group(u, self.groups), d] for d in paying)

    def starts(self, j: int, u: int) -> Any:
        """Return a variable that is 1 when slot u starts at item j (boundary j is its left side)."""
        if (j, u) not in self._starts:
            x = self.model.items
            self._starts[j, u] = self.real(f"start_{j}_{u}", 1.0)
            self.lp += self._starts[j, u] >= x[j, u] - x[j - 1, u]
        return self._starts[j, u]

    def ends(self, j: int, u: int) -> Any:
        """Return a variable that is 1 when slot u ends before item j (boundary j is its right side)."""
        if (j, u) not in self._ends:
            x = self.model.items
            self._ends[j, u] = self.real(f"end_{j}_{u}", 1.0)
            self.lp += self._ends[j, u] >= x[j - 1, u] - x[j, u]
        return self._ends[j, u]

    def _adjacent(self, sides: list[list[list[Any]]]) -> None:
        cluster = self.problem.cluster
        a = self.model.homes
        if cluster.links in ("uniform", "none"):
            seconds = self.tables.boundary_seconds(self.tables.uniform_ways)
            if self.groups == 1:  # nothing leaves the one device
                seconds = np.zeros((2, self.n + 1))
            for phase in (FORWARD, BACKWARD):
                most = float(seconds[phase].max(initial=0.0))
                for u in range(self.slots):
                    slack = most * self._free(u)
                    left = self.sum(float(seconds[phase, j]) * self.starts(j, u) for j in range(1, self.n))
                    right = self.sum(float(seconds[phase, j]) * self.ends(j, u) for j in range(1, self.n))
                    self.lp += sides[0][phase][u] >= left - slack
                    self.lp += sides[1][phase][u] >= right - slack
            return
        for u in range(self.slots - 1):  # slot u + 1 sends to slot u
            here, before = _group(u, self.groups), _group(u + 1, self.groups)
            for d in range(self.p):
                for e in range(self.p):
                    if e == d and self.groups > 1:
                        continue
                    seconds = self.tables.boundary_seconds(cluster.both_ways(e, d))
                    if e == d:
                        seconds = np.zeros((2, self.n + 1))
                    used = a[here, d] + a[before, e] - 1
                    for phase in (FORWARD, BACKWARD):
                        most = float(seconds[phase].max(initial=0.0))
                        crossing = self.sum(float(seconds[phase, j]) * self.starts(j, u) for j in range(1, self.n))
                        if self.tables.pays(d):
                            self.lp += sides[0][phase][u] >= crossing - most * (1 - used)
                        if self.tables.pays(e):
                            self.lp += sides[1][phase][u + 1] >= crossing - most * (1 - used)

    def _direct(self, sides: list[list[list[Any]]]) -> None:
        position, tensors = self.problem.linearisation.position, self.problem.graph.tensors
        x = self.model.items
        cost = charges(self.problem.graph, position, training=self.problem.has_backward)
        seconds = cost.time(self.tables.uniform_link)
        totals: list[list[list[list[Any]]]] = [[[[] for _ in range(self.slots)] for _ in (0, 1)] for _ in sides]
        for t in range(len(tensors)):
            home = int(cost.producer[t])
            readers = sorted({int(position[c]) for c in tensors.consumers_of(t)} - {home})
            if not readers or not seconds[:, t].any():
                continue
            for u in range(self.slots):
                taken, given = self.real(f"t_in_{t}_{u}", 1.0), self.real(f"t_out_{t}_{u}", 1.0)
                here = [k for k in range(self.slots) if _group(k, self.groups) == _group(u, self.groups)]
                for reader in readers:
                    self.lp += taken >= x[reader, u] - self.sum(x[home, k] for k in here)
                    self.lp += given >= x[home, u] - self.sum(x[reader, k] for k in here)
                for phase in (FORWARD, BACKWARD):
                    totals[0][phase][u].append(float(seconds[phase, t]) * taken)
                    totals[1][phase][u].append(float(seconds[phase, t]) * given)
        for side in (0, 1):
            for phase in (FORWARD, BACKWARD):
                most = float(seconds[phase].sum())
                for u in range(self.slots):
                    self.lp += sides[side][phase][u] >= self.sum(totals[side][phase][u]) - most * self._free(u)

    def memory(self) -> None:
        """Limit the memory of every device group."""
        problem, costs, x = self.problem, self.tables.costs, self.model.items
        held, kept = np.diff(costs.held), np.diff(costs.kept)
        flights = problem.flights(self.slots)[::-1]  # flights counts from the front, slots from the end
        need: dict[int, list[Any]] = {g: [] for g in range(self.groups)}
        top = {g: self.real(f"workspace_{g}") for g in range(self.groups)}
        everything = float(costs.held[-1] + costs.scratch.max(initial=0.0) + costs.buffers.sum())
        for u in range(self.slots):
            y = float(flights[u])
            everything += y * float(costs.kept[-1] + costs.inputs.max(initial=0.0))
        for u in range(self.slots):
            y, g = float(flights[u]), _group(u, self.groups)
            full = self.sum(float(kept[item]) * x[item, u] for item in range(self.n))
            inputs = self.sum(float(costs.inputs[j]) * self.starts(j, u) for j in range(1, self.n))
            if problem.recompute == "never":
                active: Any = y * full
            elif problem.recompute == "always":
                active = y * inputs + full
            else:
                active = self.real(f"active_{u}")
                self.lp += active >= y * full - everything * self.model.flags[u]
                self.lp += active >= y * inputs + full - everything * (1 - self.model.flags[u])
            buffers = self.sum(
                float(costs.buffers[FORWARD, j]) * self.starts(j, u)
                + float(costs.buffers[BACKWARD, j]) * self.ends(j, u)
                for j in range(1, self.n)
            )
            fixed = self.sum(float(held[item]) * x[item, u] for item in range(self.n))
            need[g].append(fixed + active + buffers)
            for item in range(self.n):
                if costs.scratch[item] > 0:
                    self.lp += top[g] >= float(costs.scratch[item]) * x[item, u]
        memory = np.minimum(problem.cluster.memory_bytes, everything)
        scale = max(everything, 1.0)  # bytes are large; rows near 1 keep the solver's tolerances meaningful
        for g in range(self.groups):
            room = self.sum(float(memory[d] / scale) * self.model.homes[g, d] for d in range(self.p))
            self.lp += (self.sum(need[g]) + top[g]) * (1 / scale) <= room
