"""Model room: the cost graph, a DAG of operators joined by tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balance.problems.model.errors import GraphError
from balance.problems.model.operator_columns import (
    Columns,
    kind_names,
    label,
    operator_count,
    operator_names,
    read_only,
)
from balance.problems.model.operator_rows import operator_row, operator_tables
from balance.problems.model.operators import BYTES, TIMES, Configuration, Operator, TimeTable
from balance.problems.model.tensors import FloatArray, IntArray, Tensor, Tensors, shrunk
from balance.problems.model.topology import ordered

if TYPE_CHECKING:
    import networkx

__all__ = ["BYTES", "TIMES", "Configuration", "CostGraph", "Operator", "TimeTable"]


@dataclass(frozen=True, init=False, eq=False, repr=False)
class CostGraph:
    """A DAG of n operators joined by T tensors, with costs per device kind (K) and configuration (C).

    Every array is read-only. Scalars and missing tables are broadcast, so a million unnamed operators stay cheap.

    Parameters
    ----------
    forward, backward
        Seconds per micro-batch; shape (n,), (K, n) or (K, C, n), or a mapping from kind to (n,) or (C, n). Infinity
        (or a kind left out of the mapping) in either of the two means that the kind cannot host the operator, whatever
        the schedule: see `hosts`.
    backward_input, backward_weight
        The two parts of `backward` for runtimes that split it, same shapes; None when unknown. They may add up to
        more than `backward`, since a split backward pass costs extra.
    parameter_bytes, activation_bytes, workspace_bytes, static_bytes, sync_bytes
        Scalar, (n,) or (C, n). Parameters; what is kept from forward to backward per micro-batch; scratch memory
        while running; held whatever happens; bytes to synchronise between replicas per step.
    kinds
        Names of the device kinds, (K,). Default: the mapping's keys, or ``("device",)``.
    configurations
        The C configurations; one plain configuration by default.
    names
        Unique operator names, (n,), or None.
    colocation
        (n,) labels; operators with the same label share a device. None or -1: no constraint.
    pinned
        (n,) device indices; -1 or None: not pinned.
    is_backward
        (n,) flags; set in operator graphs that carry their backward pass as operators.
    tensors
        A `Tensors` table or an iterable of `Tensor`.
    name
        Label for reports.
    source
        Where the numbers come from; kept as it is, not part of the hash.

    Raises
    ------
    GraphError
        If there is a cycle, a dangling reference, a nan or negative cost or a duplicate name; it names the culprit.

    Examples
    --------
    >>> graph = CostGraph(forward=[1.0, 2.0, 3.0], tensors=[Tensor(0, (1,), bytes=8.0), Tensor(1, (2,), bytes=8.0)])
    >>> graph.n_operators, graph.style
    (3, 'inference')
    """

    forward: FloatArray
    backward: FloatArray
    backward_input: FloatArray | None
    backward_weight: FloatArray | None
    parameter_bytes: FloatArray
    activation_bytes: FloatArray
    workspace_bytes: FloatArray
    static_bytes: FloatArray
    sync_bytes: FloatArray
    kinds: tuple[str, ...]
    configurations: tuple[Configuration, ...]
    names: tuple[str, ...] | None
    colocation: IntArray
    pinned: IntArray
    is_backward: NDArray[np.bool_]
    tensors: Tensors
    order: IntArray
    name: str = ""
    source: dict[str, Any] = field(default_factory=dict)

    def __init__(
        self,
        *,
        forward: TimeTable,
        backward: TimeTable = 0.0,
        backward_input: TimeTable | None = None,
        backward_weight: TimeTable | None = None,
        parameter_bytes: ArrayLike = 0.0,
        activation_bytes: ArrayLike = 0.0,
        workspace_bytes: ArrayLike = 0.0,
        static_bytes: ArrayLike = 0.0,
        sync_bytes: ArrayLike = 0.0,
        kinds: Sequence[str] | None = None,
        configurations: Sequence[Configuration] | None = None,
        names: Sequence[str] | None = None,
        colocation: Sequence[Any] | IntArray | None = None,
        pinned: Sequence[int | None] | IntArray | None = None,
        is_backward: ArrayLike | None = None,
        tensors: Tensors | Iterable[Tensor] = (),
        name: str = "",
        source: Mapping[str, Any] | None = None,
    ) -> None:
        columns = tuple(configurations) if configurations is not None else (Configuration(),)
        if not columns or len(set(columns)) != len(columns):
            raise GraphError(f"configurations must be distinct and at least one, got {columns!r}")
        n = operator_count(forward, names)
        labels = operator_names(names, n)
        make = Columns(kind_names(forward, kinds), len(columns), labels, n)
        put = object.__setattr__
        put(self, "kinds", make.kinds)
        put(self, "configurations", columns)
        put(self, "names", labels)
        put(self, "name", str(name))
        put(self, "source", dict(source or {}))
        put(self, "forward", make.seconds("forward", forward))
        put(self, "backward", make.seconds("backward", backward))
        for key, times in (("backward_input", backward_input), ("backward_weight", backward_weight)):
            put(self, key, None if times is None else make.seconds(key, times))
        for key, amounts in (
            ("parameter_bytes", parameter_bytes),
            ("activation_bytes", activation_bytes),
            ("workspace_bytes", workspace_bytes),
            ("static_bytes", static_bytes),
            ("sync_bytes", sync_bytes),
        ):
            put(self, key, make.bytes(key, amounts))
        put(self, "colocation", make.labels(colocation))
        put(self, "pinned", make.pins(pinned))
        put(self, "is_backward", make.flags(is_backward))
        table = tensors if isinstance(tensors, Tensors) else Tensors.of(tensors, self.index)
        put(self, "tensors", table.completed(n, gradients=self.style == "layers"))
        order = ordered(n, self.tensors.edge_producer, self.tensors.consumers, self.label)
        put(self, "order", read_only(order))

    @classmethod
    def from_operators(
        cls,
        operators: Iterable[Operator],
        tensors: Iterable[Tensor] = (),
        *,
        kinds: Sequence[str] | None = None,
        name: str = "",
        source: Mapping[str, Any] | None = None,
    ) -> CostGraph:
        """Build a graph of one configuration from `Operator` and `Tensor` objects.

        Raises
        ------
        GraphError
            As the constructor.
        """
        rows = list(operators)
        return cls(**operator_tables(rows, kinds), tensors=tensors, name=name, source=source)

    @classmethod
    def chain(
        cls,
        forward: TimeTable,
        *,
        bytes: ArrayLike = 0.0,
        gradient_bytes: ArrayLike | None = None,
        seconds: ArrayLike | None = None,
        **tables: Any,
    ) -> CostGraph:
        """Build a chain of n operators with one tensor between neighbours.

        Parameters
        ----------
        forward
            As in the constructor.
        bytes, gradient_bytes, seconds
            Of the n - 1 boundary tensors; scalar or shape (n - 1,).
        **tables
            Any other keyword of the constructor except `tensors`.

        Examples
        --------
        >>> CostGraph.chain([1.0, 2.0], bytes=4.0, backward=[2.0, 4.0]).style
        'layers'
        """
        n = operator_count(forward, None)
        steps = np.arange(max(n - 1, 0), dtype=np.int64)
        joined = Tensors.pairs(steps, steps + 1, bytes, gradient_bytes=gradient_bytes, seconds=seconds)
        return cls(forward=forward, tensors=joined, **tables)

    def replace(self, **changes: Any) -> CostGraph:
        """Return a copy with some constructor arguments changed.

        Raises
        ------
        GraphError
            As the constructor, and for an unknown field.
        """
        state = self._arguments()
        unknown = [key for key in changes if key not in state]
        if unknown:
            raise GraphError(f"a cost graph has no field {unknown[0]!r}; its fields are {', '.join(state)}")
        return CostGraph(**{**state, **changes})

    @property
    def n_operators(self) -> int:
        """Number of operators."""
        return int(self.forward.shape[2])

    @property
    def n_tensors(self) -> int:
        """Number of tensors."""
        return len(self.tensors)

    @cached_property
    def style(self) -> str:
        """``"operators"`` (backward pass as operators), ``"layers"`` (backward columns) or ``"inference"``."""
        if self.is_backward.any():
            return "operators"
        parts = [t for t in (self.backward, self.backward_input, self.backward_weight) if t is not None]
        # Infinity is no time: it says that a kind cannot host the operator.
        return "layers" if any(bool(((part > 0) & np.isfinite(part)).any()) for part in parts) else "inference"

    @cached_property
    def hosts(self) -> NDArray[np.bool_]:
        """Whether a kind can host an operator: both of its times are finite there, shape (K, C, n)."""
        return read_only(np.isfinite(self.forward) & np.isfinite(self.backward))

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names or ())}

    def index(self, operator: int | str) -> int:
        """Return an operator's position from its position or name.

        Raises
        ------
        GraphError
            If there is no such operator.
        """
        if isinstance(operator, str):
            if operator not in self._positions:
                hint = "" if self.names is not None else " (the operators of this graph have no names)"
                raise GraphError(f"there is no operator {operator!r}{hint}", operator=operator)
            return self._positions[operator]
        if isinstance(operator, bool) or not isinstance(operator, (int, np.integer)):
            raise GraphError(f"an operator is named by a position or a name, not {operator!r}")
        if not 0 <= operator < self.n_operators:
            raise GraphError(f"there is no operator {operator}; the graph has {self.n_operators}", operator=operator)
        return int(operator)

    def label(self, i: int) -> str:
        """Return the name of operator `i`, or ``#i`` if it has none."""
        return label(self.names, i)

    def kind_index(self, kind: str) -> int:
        """Return the row of a device kind in the time tables.

        Raises
        ------
        GraphError
            If no cost is known for this kind.
        """
        if kind not in self.kinds:
            raise GraphError(f"no costs are known for device kind {kind!r}; the graph has {', '.join(self.kinds)}")
        return self.kinds.index(kind)

    def operator(self, i: int | str) -> Operator:
        """Return one operator as an `Operator`, with the costs of the first configuration on the kinds that host it."""
        return operator_row(self, self.index(i))

    @cached_property
    def hash(self) -> str:
        """SHA-256 over everything that decides a plan: structure, costs, names; not `name` and `source`."""
        digest = hashlib.sha256(b"dnn-balance graph 1")
        digest.update(repr((self.kinds, self.configurations, self.names, self.n_operators)).encode())
        tables = [getattr(self, key) for key in (*TIMES, *BYTES, "colocation", "pinned", "is_backward")]
        columns = (*(c for c in Tensors.__slots__ if c != "names"),)
        for table in (*tables, *(getattr(self.tensors, column) for column in columns)):
            digest.update(b"-" if table is None else np.ascontiguousarray(table).tobytes())
            digest.update(b"|")
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CostGraph) and self.hash == other.hash

    def __hash__(self) -> int:
        return hash(self.hash)

    def __repr__(self) -> str:
        label = f"{self.name!r}, " if self.name else ""
        return f"CostGraph({label}{self.n_operators} operators, {self.n_tensors} tensors, {self.style})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Broadcast tables travel as the numbers that they repeat; the constructor checks and freezes everything again.
        state = {key: value for key, value in self._arguments().items() if value is not None}
        arrays = {key: state.pop(key) for key in list(state) if isinstance(state[key], np.ndarray)}
        for key in ("colocation", "pinned"):
            if not (arrays[key] >= 0).any():
                del arrays[key]
        return (_rebuild, (state, {key: (shrunk(array), array.shape) for key, array in arrays.items()}))

    def _arguments(self) -> dict[str, Any]:
        """Return what the constructor takes to make this graph again."""
        columns = ("kinds", "configurations", "names", "colocation", "pinned", "is_backward", "tensors")
        return {key: getattr(self, key) for key in (*TIMES, *BYTES, *columns, "name", "source")}

    def summary(self) -> str:
        """Return a few lines for people: size, kinds, total times and bytes of the first configuration."""
        lines = [f"{self!r}"]
        for k, kind in enumerate(self.kinds):
            hosted = self.hosts[k, 0]
            forward = float(self.forward[k, 0][hosted].sum())
            backward = float(self.backward[k, 0][hosted].sum())
            lines.append(f"  {kind}: hosts {int(hosted.sum())}, forward {forward:.6g} s, backward {backward:.6g} s")
        totals = [(key, float(getattr(self, key)[0].sum())) for key in BYTES]
        given = ", ".join(f"{key} {value:.4g}" for key, value in totals if value)
        lines.append(f"  {given or 'no bytes given'}")
        lines.append(f"  tensors: {float(self.tensors.bytes.sum()):.4g} bytes; hash {self.hash[:12]}")
        return "\n".join(lines)

    # -- files and other libraries -----------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary with a schema version; `from_json` restores an equal graph."""
        from balance.problems.model.graph_json import graph_to_json

        return graph_to_json(self)

    @classmethod
    def from_json(cls, data: Any) -> CostGraph:
        """Build from what `to_json` returns, or from the row form of docs/formats.

        Raises
        ------
        FormatError
            If a field is missing, unknown or malformed.
        """
        from balance.problems.model.graph_json import graph_from_json

        return graph_from_json(data)

    def save(self, path: str | Path) -> None:
        """Write the graph as JSON; the file is replaced only when the new one is complete."""
        from balance.problems.model.files import write_json

        write_json(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> CostGraph:
        """Read a graph that `save` wrote.

        Raises
        ------
        FormatError
            If the file is not such a graph.
        """
        from balance.problems.model.files import read_json

        return read_json(path, cls.from_json)

    def to_networkx(self) -> networkx.DiGraph[Any]:
        """Return a ``networkx.DiGraph`` over operator positions; edges carry their tensor."""
        from balance.problems.model.graph_networkx import to_networkx

        return to_networkx(self)

    @classmethod
    def from_networkx(cls, graph: networkx.DiGraph[Any]) -> CostGraph:
        """Build from a ``networkx.DiGraph``; see `balance.problems.model.graph_networkx` for the attributes read.

        Raises
        ------
        GraphError
            If the graph is undirected, cyclic or has bad attributes.
        """
        from balance.problems.model.graph_networkx import from_networkx

        return from_networkx(graph)


def _rebuild(state: dict[str, Any], arrays: dict[str, tuple[NDArray[Any], tuple[int, ...]]]) -> CostGraph:
    tables: dict[str, Any] = {key: np.broadcast_to(array, shape) for key, (array, shape) in arrays.items()}
    return CostGraph(**state, **tables)
