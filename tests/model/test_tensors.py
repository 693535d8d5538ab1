"""Tensors as nets in compressed rows."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance.problems.model.errors import GraphError, PlanError
from balance.problems.model.graph import CostGraph
from balance.problems.model.tensors import Tensor, Tensors, positions

ROWS = [Tensor(0, (1, 2), 8.0, name="x"), Tensor(1, (2,), 4.0, 2.0, 0.5, 0.25)]


def build(rows: list[Tensor]) -> Tensors:
    """Return a table over operators that are named by position."""
    return Tensors.of(rows, int)


def test_rows_and_views_agree() -> None:
    """The compressed rows hold what was given, and views give it back."""
    table = build(ROWS)
    assert list(table) == ROWS
    assert (len(table), table.n_pins) == (2, 3)
    assert table.offsets.tolist() == [0, 2, 3]
    assert table.consumers.tolist() == [1, 2, 2]
    assert table.edge_producer.tolist() == [0, 0, 1]
    assert table.edge_tensor.tolist() == [0, 0, 1]
    assert table.consumers_of(0).tolist() == [1, 2]
    assert table[-1] == ROWS[1]
    assert table[:1] == ROWS[:1]
    assert np.isnan(table.seconds[0])
    with pytest.raises(IndexError):
        table[2]


def test_pairs_are_nets_of_one_reader() -> None:
    """Edge arrays become one tensor an edge."""
    table = Tensors.pairs([0, 0], [1, 2], 3.0)
    assert [(t.producer, t.consumers, t.bytes) for t in table] == [(0, (1,), 3.0), (0, (2,), 3.0)]


def test_the_empty_table() -> None:
    """A graph without tensors is fine."""
    for table in (build([]), Tensors([], [0], [])):
        assert (len(table), table.n_pins, list(table)) == (0, 0, [])


def test_tables_cannot_be_changed() -> None:
    """Neither arrays nor attributes can be written, nor does the caller's array shine through."""
    mine = np.array([1.0])
    table = Tensors([0], [0, 1], [1], mine)
    mine[0] = 5.0
    assert table.bytes.tolist() == [1.0]
    with pytest.raises(ValueError, match="read-only"):
        table.bytes[0] = 2.0
    with pytest.raises(AttributeError, match="immutable"):
        table.bytes = mine
    for other in (pickle.loads(pickle.dumps(table)), copy.deepcopy(table)):
        assert list(other) == list(table)
        with pytest.raises(ValueError, match="read-only"):
            other.bytes[0] = 2.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tensors([0], [0, 1], [0]), "read by its own producer 0: a cycle"),
        (lambda: Tensors([0], [0, 2], [1, 1]), "names operator 1 twice"),
        (lambda: Tensors([0, 1], [0, 0, 1], [2]), "tensor 0 has no consumer"),
        (lambda: Tensors([0], [0, 2], [1]), "offsets must have 2 entries from 0 to 1"),
        (lambda: Tensors([0], [0], [1]), "offsets must have 2 entries"),
        (lambda: Tensors([0, 1], [0, 2, 1], [2]), "tensor 1 has no consumer"),
        (lambda: Tensors([0], [0, 1], [1], -1.0), "tensor 0 has bytes = -1"),
        (lambda: Tensors([0], [0, 1], [1], np.nan), "tensor 0 has bytes = nan"),
        (lambda: Tensors([0], [0, 1], [1], seconds=np.inf), "tensor 0 has seconds = inf"),
        (lambda: Tensors([0], [0, 1], [1], [1.0, 2.0]), "'bytes' must be a number or 1 numbers"),
        (lambda: Tensors([0], [0, 1], [1], "many"), "'bytes' must be a number"),
        (lambda: Tensors([0.5], [0, 1], [1]), "producers must be given by position"),
        (lambda: Tensors([0], [0, 1], [1.5]), "consumers must be given by position"),
        (lambda: Tensors(["a"], [0, 1], [1]), "producers must be given by position"),
        (lambda: Tensors(0, [0, 1], [1]), "producers must be a list"),
        (lambda: Tensors([0], [0, 1], [1], names=["a", "b"]), "2 tensor names for 1 tensors"),
        (lambda: build([Tensor(0, 1)]), "give a tuple"),  # type: ignore[arg-type]
        (lambda: build([Tensor(0, "ab")]), "give a tuple"),  # type: ignore[arg-type]
    ],
)
def test_bad_tables_are_refused(make: object, message: str) -> None:
    """Each defect is named with the tensor it is in."""
    assert callable(make)
    with pytest.raises(GraphError, match=message):
        make()


def test_positions_are_whole_numbers() -> None:
    """Whole floats are taken, fractions, nan, flags and words are not, and the caller picks the error."""
    assert positions([1.0, 2.0], "x").tolist() == [1, 2]
    assert positions([], "x").dtype == np.int64
    for bad in ([0.5], [np.nan], [np.inf], [True], ["a"], [None], [[1, 2]], 3, [2.0**70], [2**70]):
        with pytest.raises(PlanError, match=r"^x must be"):
            positions(bad, "x", PlanError)


@given(st.data())
def test_negative_zero_and_nan_have_one_form(data: st.DataObject) -> None:
    """Equal costs have equal bits, so that equal graphs have equal hashes."""
    zeros = data.draw(st.lists(st.sampled_from([0.0, -0.0]), min_size=3, max_size=3))
    absent = data.draw(st.sampled_from([np.nan, -np.nan]))
    graph = CostGraph.chain(zeros, bytes=zeros[:2], seconds=absent, backward=zeros)
    assert graph.hash == CostGraph.chain([0.0, 0.0, 0.0], bytes=0.0).hash
