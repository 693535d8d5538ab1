"""Model room: tensors, the nets that join operators, held as arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balance.problems.model.errors import BalanceError, GraphError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Tensor:
    """One tensor: a net from its producer to every operator that reads it.

    Parameters
    ----------
    producer
        Operator that makes it, by index or name.
    consumers
        Operators that read it, by index or name; at least one, none twice.
    bytes
        Size sent forward, per micro-batch.
    gradient_bytes
        Size of the gradient sent back. None: the same as `bytes` in a layer graph, 0 in other graphs.
    seconds, gradient_seconds
        Given transfer times, for formats that carry times and no links; they win over bytes. None: from bytes and
        the link (`gradient_seconds` follows `seconds` in a layer graph when only that is given).
    name
        Label for messages.
    """

    producer: int | str
    consumers: tuple[int | str, ...]
    bytes: float = 0.0
    gradient_bytes: float | None = None
    seconds: float | None = None
    gradient_seconds: float | None = None
    name: str | None = None


def frozen(values: ArrayLike, dtype: Any = np.float64) -> NDArray[Any]:
    """Return `values` as a read-only array that shares no writable memory with the caller."""
    array = np.array(values, dtype=dtype)
    array.flags.writeable = False
    return array


def shrunk(array: NDArray[Any]) -> NDArray[Any]:
    """Return what a broadcast array repeats: every repeated axis with length 1."""
    if array.size <= 1:
        return array
    return array[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in array.strides)]


def positions(values: ArrayLike, what: str, error: type[BalanceError] = GraphError) -> IntArray:
    """Return `values` as a read-only integer array of one axis; fractions are refused, not cut off.

    Raises
    ------
    BalanceError
        Of the given type, if they are no whole numbers.
    """
    try:
        array = np.asarray(values)
        if array.dtype.kind in "fbO" and array.size:
            cells = array.astype(np.float64)
            whole = (np.abs(cells) < 2.0**62) & (cells == np.floor(cells))
            if array.dtype.kind == "b" or not whole.all():
                raise ValueError("they are not whole numbers")
        result = frozen(array, np.int64)
    except (TypeError, ValueError, OverflowError) as reason:
        raise error(f"{what} must be given by position: {reason}") from None
    if result.ndim != 1:
        raise error(f"{what} must be a list, got an array of shape {result.shape}")
    return result


def canonical(array: FloatArray) -> FloatArray:
    """Return the array with one zero and one nan, so that equal numbers have equal bits (graphs are hashed)."""
    if np.signbit(array).any():
        array = array + 0.0
    absent = np.isnan(array)
    return np.where(absent, np.nan, array) if absent.any() else array


class Tensors:
    """All tensors of a graph as compressed rows: tensor t is read by ``consumers[offsets[t]:offsets[t + 1]]``.

    Parameters
    ----------
    producer
        Producing operator of each tensor, shape (T,).
    offsets
        Row starts into `consumers`, shape (T + 1,).
    consumers
        Reading operators, shape (pins,).
    bytes, gradient_bytes
        Sizes, scalar or shape (T,). `gradient_bytes` nan (or None) means the default of the graph's style.
    seconds, gradient_seconds
        Given transfer times, scalar or shape (T,); nan (or None) where they follow from bytes and the link.
    names
        Labels, or None.

    Raises
    ------
    GraphError
        If shapes disagree, a cost is negative or infinite, or a tensor has no consumer or the same one twice.
    """

    __slots__ = ("bytes", "consumers", "gradient_bytes", "gradient_seconds", "names", "offsets", "producer", "seconds")

    producer: IntArray
    offsets: IntArray
    consumers: IntArray
    bytes: FloatArray
    gradient_bytes: FloatArray
    seconds: FloatArray
    gradient_seconds: FloatArray
    names: tuple[str | None, ...] | None

    def __init__(
        self,
        producer: ArrayLike,
        offsets: ArrayLike,
        consumers: ArrayLike,
        bytes: ArrayLike = 0.0,
        *,
        gradient_bytes: ArrayLike | None = None,
        seconds: ArrayLike | None = None,
        gradient_seconds: ArrayLike | None = None,
        names: Iterable[str | None] | None = None,
    ) -> None:
        put = object.__setattr__
        put(self, "producer", positions(producer, "producers"))
        put(self, "offsets", positions(offsets, "tensor offsets"))
        put(self, "consumers", positions(consumers, "consumers"))
        count = len(self.producer)
        if self.offsets.shape != (count + 1,) or self.offsets[0] != 0 or self.offsets[-1] != len(self.consumers):
            raise GraphError(
                f"tensor offsets must have {count + 1} entries from 0 to {len(self.consumers)} (the number of pins), "
                f"got shape {self.offsets.shape}"
            )
        sizes = np.diff(self.offsets)
        if count and sizes.min() < 1:
            t = int(np.argmax(sizes < 1))
            raise GraphError(f"tensor {t} has no consumer; leave out tensors that nobody reads", tensor=t)
        for field, given, absent_ok in (
            ("bytes", bytes, False),
            ("gradient_bytes", gradient_bytes, True),
            ("seconds", seconds, True),
            ("gradient_seconds", gradient_seconds, True),
        ):
            column = np.nan if given is None else given
            try:
                array = np.broadcast_to(np.asarray(column, dtype=np.float64), (count,))
            except (ValueError, TypeError) as error:
                raise GraphError(f"tensor column {field!r} must be a number or {count} numbers: {error}") from None
            bad = ~((array >= 0) & (array < np.inf))
            if absent_ok:
                bad &= ~np.isnan(array)
            if bad.any():
                t = int(np.argmax(bad))
                raise GraphError(
                    f"tensor {t} has {field} = {array[t]}; it must be a finite number that is not negative",
                    tensor=t,
                    field=field,
                    value=float(array[t]),
                )
            put(self, field, frozen(canonical(array)))
        labels = tuple(names) if names is not None else None
        if labels is not None and len(labels) != count:
            raise GraphError(f"{len(labels)} tensor names for {count} tensors")
        put(self, "names", labels if labels is not None and any(label is not None for label in labels) else None)
        self._check_pins()

    def _check_pins(self) -> None:
        if not len(self.consumers):
            return
        rows = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        loops = self.consumers == self.producer[rows]
        if loops.any():
            t = int(rows[np.argmax(loops)])
            raise GraphError(f"tensor {t} is read by its own producer {int(self.producer[t])}: a cycle", tensor=t)
        if len(self.consumers) > len(self):  # some tensor has two readers: look for the same one twice
            order = np.lexsort((self.consumers, rows))
            same = (np.diff(rows[order]) == 0) & (np.diff(self.consumers[order]) == 0)
            if same.any():
                at = order[int(np.argmax(same))]
                raise GraphError(
                    f"tensor {int(rows[at])} names operator {int(self.consumers[at])} twice as its consumer",
                    tensor=int(rows[at]),
                )

    def completed(self, n: int, *, gradients: bool) -> Tensors:
        """Return the tensors of a graph of n operators, with the gradient columns that were left out.

        Parameters
        ----------
        n
            Number of operators.
        gradients
            Whether every tensor has a gradient: absent sizes and times are then those of the tensor, otherwise 0.

        Raises
        ------
        GraphError
            If a tensor names an operator that is not there.
        """
        for column, what in ((self.producer, "producer"), (self.consumers, "consumer")):
            bad = (column < 0) | (column >= n)
            if bad.any():
                at = int(np.argmax(bad))
                t = at if what == "producer" else int(self.edge_tensor[at])
                raise GraphError(
                    f"tensor {t} names {what} {int(column[at])}, but the graph has {n} operators", tensor=t
                )
        absent = np.isnan(self.gradient_bytes)
        untimed = np.isnan(self.gradient_seconds) & ~np.isnan(self.seconds)
        if not absent.any() and not untimed.any():
            return self
        return Tensors(
            self.producer,
            self.offsets,
            self.consumers,
            self.bytes,
            gradient_bytes=np.where(absent, self.bytes if gradients else 0.0, self.gradient_bytes),
            seconds=self.seconds,
            gradient_seconds=np.where(untimed, self.seconds if gradients else 0.0, self.gradient_seconds),
            names=self.names,
        )

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("Tensors are immutable; build new ones")

    def __reduce__(self) -> tuple[Any, ...]:
        columns = {field: getattr(self, field) for field in self.__slots__}
        return (_restore, (columns,))

    @classmethod
    def of(cls, tensors: Iterable[Tensor], index: Callable[[int | str], int]) -> Tensors:
        """Build from `Tensor` objects; `index` turns an operator's name into its position.

        Raises
        ------
        GraphError
            If a reference dangles.
        """
        rows = list(tensors)
        for t, row in enumerate(rows):
            readers: object = row.consumers
            if isinstance(readers, str) or not isinstance(readers, Iterable):
                raise GraphError(f"tensor {t} has consumers={readers!r}; give a tuple of operators", tensor=t)
        producer = [index(row.producer) for row in rows]
        consumers = [[index(c) for c in row.consumers] for row in rows]
        nan = math.nan
        return cls(
            np.array(producer, dtype=np.int64),
            np.concatenate(([0], np.cumsum([len(c) for c in consumers], dtype=np.int64))),
            np.array([c for row in consumers for c in row], dtype=np.int64),
            np.array([row.bytes for row in rows], dtype=np.float64),
            gradient_bytes=np.array([nan if r.gradient_bytes is None else r.gradient_bytes for r in rows], dtype=float),
            seconds=np.array([nan if r.seconds is None else r.seconds for r in rows], dtype=float),
            gradient_seconds=np.array(
                [nan if r.gradient_seconds is None else r.gradient_seconds for r in rows], dtype=float
            ),
            names=[row.name for row in rows],
        )

    @classmethod
    def pairs(cls, producer: ArrayLike, consumer: ArrayLike, bytes: ArrayLike = 0.0, **columns: Any) -> Tensors:
        """Build tensors of one reader each from edge arrays, shape (T,)."""
        source = np.asarray(producer, dtype=np.int64)
        return cls(source, np.arange(len(source) + 1), consumer, bytes, **columns)

    def __len__(self) -> int:
        return len(self.producer)

    @property
    def n_pins(self) -> int:
        """Number of (tensor, consumer) pairs."""
        return len(self.consumers)

    @property
    def edge_producer(self) -> IntArray:
        """Producer of each pin, shape (pins,)."""
        return np.repeat(self.producer, np.diff(self.offsets))

    @property
    def edge_tensor(self) -> IntArray:
        """Tensor of each pin, shape (pins,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def consumers_of(self, t: int) -> IntArray:
        """Return the readers of tensor `t`."""
        return self.consumers[self.offsets[t] : self.offsets[t + 1]]

    @overload
    def __getitem__(self, t: int) -> Tensor: ...
    @overload
    def __getitem__(self, t: slice) -> list[Tensor]: ...
    def __getitem__(self, t: int | slice) -> Tensor | list[Tensor]:
        if isinstance(t, slice):
            return [self[i] for i in range(*t.indices(len(self)))]
        if not -len(self) <= t < len(self):
            raise IndexError(f"tensor {t} of {len(self)}")
        t %= len(self)

        def given(column: FloatArray) -> float | None:
            return None if math.isnan(column[t]) else float(column[t])

        return Tensor(
            int(self.producer[t]),
            tuple(int(c) for c in self.consumers_of(t)),
            float(self.bytes[t]),
            given(self.gradient_bytes),
            given(self.seconds),
            given(self.gradient_seconds),
            self.names[t] if self.names is not None else None,
        )

    def __iter__(self) -> Iterator[Tensor]:
        return (self[t] for t in range(len(self)))

    def __repr__(self) -> str:
        return f"Tensors({len(self)} tensors, {self.n_pins} pins)"


def _restore(columns: dict[str, Any]) -> Tensors:
    tensors = Tensors.__new__(Tensors)
    for field, value in columns.items():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
        object.__setattr__(tensors, field, value)
    return tensors
