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
from balance.problems.model.tensors import FloatArray, IntArray, Tensor, Tensors, canonical, frozen, positions
from balance.problems.model.topology import find_cycle, renumber, topological_order

if TYPE_CHECKING:
    import networkx

TIMES = ("forward", "backward", "backward_input", "backward_weight")
BYTES = ("parameter_bytes", "activation_bytes", "workspace_bytes", "static_bytes", "sync_bytes")
TimeTable = ArrayLike | Mapping[str, ArrayLike]


@dataclass(frozen=True)
class Configuration:
    """One way to run an operator, a column of its cost tables.

    Parameters
    ----------
    tensor_parallel
        Devices that share the operator.
    recompute
        Whether the activations are thrown away and computed again in the backward pass.
    microbatch_size
        Samples per micro-batch that the costs are for; None when unknown.
    """

    tensor_parallel: int = 1
    recompute: bool = False
    microbatch_size: float | None = None

    def __post_init__(self) -> None:
        # One type per field, whatever number types came in: configurations are part of a graph's hash.
        size = self.microbatch_size
        if self.tensor_parallel != int(self.tensor_parallel) or self.tensor_parallel < 1:
            raise GraphError(f"tensor_parallel must be a whole number of at least 1, got {self.tensor_parallel}")
        if size is not None and not 0 <= size < np.inf:
            raise GraphError(f"microbatch_size must be finite and not negative, got {size}")
        object.__setattr__(self, "tensor_parallel", int(self.tensor_parallel))
        object.__setattr__(self, "recompute", bool(self.recompute))
        object.__setattr__(self, "microbatch_size", None if size is None else float(size) + 0.0)


@dataclass(frozen=True)
class Operator:
    """One operator with its costs in one configuration; what `CostGraph.from_operators` takes.

    Parameters
    ----------
    name
        Unique label.
    forward, backward, backward_input, backward_weight
        Seconds per micro-batch, a number for every kind or a mapping from device kind (a missing kind cannot host it).
    parameter_bytes, activation_bytes, workspace_bytes, static_bytes, sync_bytes
        Bytes, see `CostGraph`.
    colocation
        Operators with the same label share a device.
    pinned
        Index of the device it must be on.
    is_backward
        Whether it belongs to the backward pass of an operator graph.
    """

    name: str
    forward: float | Mapping[str, float] = 0.0
    backward: float | Mapping[str, float] = 0.0
    backward_input: float | Mapping[str, float] | None = None
    backward_weight: float | Mapping[str, float] | None = None
    parameter_bytes: float = 0.0
    activation_bytes: float = 0.0
    workspace_bytes: float = 0.0
    static_bytes: float = 0.0
    sync_bytes: float = 0.0
    colocation: str | int | None = None
    pinned: int | None = None
    is_backward: bool = False


@dataclass(frozen=True, init=False, eq=False, repr=False)
class CostGraph:
    """A DAG of n operators joined by T tensors, with costs per device kind (K) and configuration (C).

    Every array is read-only. Scalars and missing tables are broadcast, so a million unnamed operators stay cheap.

    Parameters
    ----------
    forward, backward
        Seconds per micro-batch; shape (n,), (K, n) or (K, C, n), or a mapping from kind to (n,) or (C, n). Infinity
        (or a kind left out of the mapping) means that the kind cannot host the operator.
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
        put = object.__setattr__
        kind_names = _kinds(forward, kinds)
        columns = tuple(configurations) if configurations is not None else (Configuration(),)
        if not columns or len(set(columns)) != len(columns):
            raise GraphError(f"configurations must be distinct and at least one, got {columns!r}")
        n = _count(forward, names)
        put(self, "kinds", kind_names)
        put(self, "configurations", columns)
        put(self, "names", _names(names, n))
        put(self, "name", str(name))
        put(self, "source", dict(source or {}))
        given = {
            "forward": forward,
            "backward": backward,
            "backward_input": backward_input,
            "backward_weight": backward_weight,
        }
        for key, times in given.items():
            put(self, key, None if times is None else self._times(key, times, n))
        sizes = {
            "parameter_bytes": parameter_bytes,
            "activation_bytes": activation_bytes,
            "workspace_bytes": workspace_bytes,
            "static_bytes": static_bytes,
            "sync_bytes": sync_bytes,
        }
        for key, amounts in sizes.items():
            put(self, key, self._sizes(key, amounts, n))
        put(self, "colocation", _labels(colocation, n))
        put(self, "pinned", _pinned(pinned, n))
        flags = np.zeros(n, dtype=bool) if is_backward is None else np.asarray(is_backward, dtype=bool)
        if flags.shape != (n,):
            raise GraphError(f"is_backward must have shape ({n},), got {flags.shape}")
        put(self, "is_backward", frozen(flags, bool))
        table = tensors if isinstance(tensors, Tensors) else Tensors.of(tensors, self.index)
        put(self, "tensors", self._defaults(table, n))
        put(self, "order", self._topological_order())

    # -- construction ------------------------------------------------------------------------------------------

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
        seen = dict.fromkeys(k for row in rows for t in TIMES for k in _mapping_keys(getattr(row, t)))
        kind_names = tuple(kinds) if kinds is not None else (tuple(seen) or ("device",))
        unknown = [k for k in seen if k not in kind_names]
        if unknown:
            raise GraphError(f"costs are given for kind {unknown[0]!r}, which is not among the kinds {kind_names}")

        def column(key: str) -> FloatArray | None:
            cells = [getattr(row, key) for row in rows]
            without = [i for i, cell in enumerate(cells) if cell is None]
            if without and len(without) == len(cells) and key in ("backward_input", "backward_weight"):
                return None
            if without:
                raise GraphError(
                    f"operator {rows[without[0]].name!r} has no {key}; give it for every operator", operator=without[0]
                )
            table = np.empty((len(kind_names), len(rows)))
            for i, cell in enumerate(cells):
                for k, kind in enumerate(kind_names):
                    value = cell.get(kind, np.inf) if isinstance(cell, Mapping) else cell
                    table[k, i] = _real(value, rows[i].name, key)
            return table if rows or key in ("forward", "backward") else None

        forward, backward = column("forward"), column("backward")
        assert forward is not None and backward is not None  # never None in an Operator
        # A kind that the forward table leaves out cannot host the operator; the backward table need not say it again.
        absent = np.isinf(backward) & np.isfinite(forward)
        if absent.any():
            k, i = (int(x) for x in np.argwhere(absent)[0])
            raise GraphError(
                f"operator {rows[i].name!r} has a forward time on {kind_names[k]!r} but no backward time there"
            )
        sizes: dict[str, Any] = {
            key: np.array([_real(getattr(row, key), row.name, key) for row in rows], dtype=np.float64) for key in BYTES
        }
        return cls(
            forward=forward,
            backward=backward,
            backward_input=column("backward_input"),
            backward_weight=column("backward_weight"),
            **sizes,
            kinds=kind_names,
            names=[row.name for row in rows],
            colocation=[row.colocation for row in rows],
            pinned=[row.pinned for row in rows],
            is_backward=[row.is_backward for row in rows],
            tensors=tensors,
            name=name,
            source=source,
        )

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
        n = _count(forward, None)
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

    # -- validation --------------------------------------------------------------------------------------------

    def _times(self, key: str, table: TimeTable, n: int) -> FloatArray:
        shape = (len(self.kinds), len(self.configurations), n)
        if isinstance(table, Mapping):
            unknown = [k for k in table if k not in self.kinds]
            if unknown:
                raise GraphError(f"{key} is given for kind {unknown[0]!r}, which is not among the kinds {self.kinds}")
            array = np.full(shape, np.inf)
            for k, kind in enumerate(self.kinds):
                if kind in table:
                    array[k] = self._fit(key, table[kind], shape[1:])
        else:
            given = self._numbers(key, table)
            if given.ndim == 2:
                given = given[:, None, :]
            array = self._fit(key, given, shape)
        bad = np.isnan(array) | (array < 0)
        if bad.any():
            k, c, i = (int(x) for x in np.argwhere(bad)[0])
            raise GraphError(
                f"operator {self.label(i)} has {key} = {array[k, c, i]} on kind {self.kinds[k]!r}; seconds must not be "
                f"nan or negative (infinity: the kind cannot host it)",
                operator=i,
                field=key,
                value=float(array[k, c, i]),
            )
        return _read_only(canonical(array))

    def _sizes(self, key: str, table: ArrayLike, n: int) -> FloatArray:
        array = self._fit(key, self._numbers(key, table), (len(self.configurations), n))
        bad = ~((array >= 0) & (array < np.inf))
        if bad.any():
            c, i = (int(x) for x in np.argwhere(bad)[0])
            raise GraphError(
                f"operator {self.label(i)} has {key} = {array[c, i]}; bytes must be finite and not negative",
                operator=i,
                field=key,
                value=float(array[c, i]),
            )
        return _read_only(canonical(array))

    @staticmethod
    def _numbers(key: str, table: ArrayLike) -> FloatArray:
        try:
            return np.asarray(table, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise GraphError(f"{key} must hold numbers: {error}", field=key) from None

    def _fit(self, key: str, table: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
        try:
            return np.broadcast_to(self._numbers(key, table), shape)
        except ValueError:
            raise GraphError(
                f"{key} has shape {np.shape(table)}, which does not fit {shape} (kinds, configurations, operators)"
                if len(shape) == 3
                else f"{key} has shape {np.shape(table)}, which does not fit {shape} (configurations, operators)",
                field=key,
            ) from None

    def _defaults(self, table: Tensors, n: int) -> Tensors:
        for column, what in ((table.producer, "producer"), (table.consumers, "consumer")):
            bad = (column < 0) | (column >= n)
            if bad.any():
                at = int(np.argmax(bad))
                t = at if what == "producer" else int(table.edge_tensor[at])
                raise GraphError(
                    f"tensor {t} names {what} {int(column[at])}, but the graph has {n} operators", tensor=t
                )
        layers = self.style == "layers"
        absent = np.isnan(table.gradient_bytes)
        untimed = np.isnan(table.gradient_seconds) & ~np.isnan(table.seconds)
        if not absent.any() and not untimed.any():
            return table
        return Tensors(
            table.producer,
            table.offsets,
            table.consumers,
            table.bytes,
            gradient_bytes=np.where(absent, table.bytes if layers else 0.0, table.gradient_bytes),
            seconds=table.seconds,
            gradient_seconds=np.where(untimed, table.seconds if layers else 0.0, table.gradient_seconds),
            names=table.names,
        )

    def _topological_order(self) -> IntArray:
        n, source, target = self.n_operators, self.tensors.edge_producer, self.tensors.consumers
        order = topological_order(n, source, target)
        if order is None:
            cycle = find_cycle(n, source, target)
            shown = [self.label(v) for v in [*cycle[:8], *([cycle[0]] if len(cycle) <= 8 else [])]]
            raise GraphError(
                f"the graph has a cycle: {' -> '.join(shown)}{' -> ...' if len(cycle) > 8 else ''}", cycle=cycle
            )
        return _read_only(order)

    # -- reading -----------------------------------------------------------------------------------------------

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
        parts = (self.backward, self.backward_input, self.backward_weight)
        return "layers" if any(part is not None and bool((part > 0).any()) for part in parts) else "inference"

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
        return repr(self.names[i]) if self.names is not None else f"#{i}"

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
        """Return one operator as an `Operator`, with the costs of the first configuration."""
        at = self.index(i)

        def times(table: FloatArray | None) -> dict[str, float] | None:
            if table is None:
                return None
            hosts = np.isfinite(self.forward[:, 0, at])
            return {kind: float(table[k, 0, at]) for k, kind in enumerate(self.kinds) if hosts[k]}

        label, pin = int(self.colocation[at]), int(self.pinned[at])
        return Operator(
            name=self.names[at] if self.names is not None else f"#{at}",
            forward=times(self.forward) or {},
            backward=times(self.backward) or {},
            backward_input=times(self.backward_input),
            backward_weight=times(self.backward_weight),
            **{key: float(getattr(self, key)[0, at]) for key in BYTES},
            colocation=None if label < 0 else label,
            pinned=None if pin < 0 else pin,
            is_backward=bool(self.is_backward[at]),
        )

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
        return (_rebuild, (self._arguments(),))

    def _arguments(self) -> dict[str, Any]:
        """Return what the constructor takes to make this graph again."""
        columns = ("kinds", "configurations", "names", "colocation", "pinned", "is_backward", "tensors")
        return {key: getattr(self, key) for key in (*TIMES, *BYTES, *columns, "name", "source")}

    def summary(self) -> str:
        """Return a few lines for people: size, kinds, total times and bytes of the first configuration."""
        lines = [f"{self!r}"]
        for k, kind in enumerate(self.kinds):
            hosted = np.isfinite(self.forward[k, 0])
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


def _rebuild(state: dict[str, Any]) -> CostGraph:
    return CostGraph(**state)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only array that does not alias the caller's; broadcast ones keep their small base."""
    if array.base is not None and 0 in array.strides and array.size > 1:
        small = array[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in array.strides)].copy()
        small.flags.writeable = False
        return np.broadcast_to(small, array.shape)
    return frozen(array, array.dtype)


def _real(value: Any, name: str, key: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise GraphError(f"operator {name!r} has {key} = {value!r}, which is not a number", field=key) from None


def _mapping_keys(cell: Any) -> list[str]:
    return list(cell) if isinstance(cell, Mapping) else []


def _kinds(forward: TimeTable, kinds: Sequence[str] | None) -> tuple[str, ...]:
    if kinds is None:
        names = tuple(forward) if isinstance(forward, Mapping) else ("device",)
    else:
        names = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    if not names or len(set(names)) != len(names) or not all(isinstance(name, str) and name for name in names):
        raise GraphError(f"device kinds must be distinct, non-empty names, got {names!r}")
    return names


def _count(forward: TimeTable, names: Sequence[str] | None) -> int:
    for table in forward.values() if isinstance(forward, Mapping) else (forward,):
        try:
            shape = np.shape(table)
        except ValueError as error:
            raise GraphError(f"forward must hold numbers: {error}", field="forward") from None
        if shape:
            return int(shape[-1])
    if names is None:
        raise GraphError("forward must be an array with one entry per operator")
    return len(names)


def _names(names: Sequence[str] | None, n: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    labels = tuple(names)
    if len(labels) != n:
        raise GraphError(f"{len(labels)} names for {n} operators")
    seen: dict[str, int] = {}
    for i, label in enumerate(labels):
        if not isinstance(label, str) or not label:
            raise GraphError(f"operator {i} has the name {label!r}; names are non-empty strings", operator=i)
        if label in seen:
            raise GraphError(f"operators {seen[label]} and {i} are both named {label!r}", operator=i, name=label)
        seen[label] = i
    return labels


def _labels(colocation: Sequence[Any] | IntArray | None, n: int) -> IntArray:
    if colocation is None:
        return _read_only(np.broadcast_to(np.int64(-1), (n,)))
    if isinstance(colocation, np.ndarray) and np.issubdtype(colocation.dtype, np.integer):
        labels = np.where(colocation < 0, -1, colocation).astype(np.int64)
    else:
        numbers: dict[Any, int] = {}
        labels = np.array(
            [
                -1
                if label is None or (isinstance(label, (int, float, np.number)) and not label >= 0)
                else numbers.setdefault(label, len(numbers))
                for label in colocation
            ],
            dtype=np.int64,
        )
    if labels.shape != (n,):
        raise GraphError(f"{len(labels)} colocation labels for {n} operators")
    used = labels >= 0
    if used.any():  # Labels are numbered by first appearance, so that equal graphs hash alike.
        labels[used] = renumber(labels[used])
    return _read_only(labels)


def _pinned(pinned: Sequence[int | None] | IntArray | None, n: int) -> IntArray:
    if pinned is None:
        return _read_only(np.broadcast_to(np.int64(-1), (n,)))
    devices = positions([-1 if d is None else d for d in pinned], "pinned devices")
    if devices.shape != (n,):
        raise GraphError(f"{len(devices)} pinned devices for {n} operators")
    return _read_only(np.where(devices < 0, -1, devices))
