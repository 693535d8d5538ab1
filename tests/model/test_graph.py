"""The cost graph: construction, validation, views, and the two worked examples with numbers computed by hand."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance.problems.model.cluster import Link
from balance.problems.model.errors import GraphError
from balance.problems.model.graph import BYTES, TIMES, Configuration, CostGraph, Operator
from balance.problems.model.tensors import Tensor, Tensors


def crossing(graph: CostGraph, inside: list[int]) -> list[int]:
    """Return the tensors with an end in the set and one outside it, each counted once."""
    members = set(inside)
    return [
        t for t, row in enumerate(graph.tensors) if len({v in members for v in (row.producer, *row.consumers)}) == 2
    ]


# -- the worked examples ---------------------------------------------------------------------------------------


def test_worked_layer_graph(layers: CostGraph) -> None:
    """Cut the four layers in the middle: loads 9 and 15 s, ten bytes cross forward and ten backward.

    The embedding's tensor (6 bytes) is read by attention and head but crosses once, attention's (4 bytes) as well;
    their gradients are as large. Over a link of 0.5 s latency and 2 B/s each way takes (0.5 + 6/2) + (0.5 + 4/2) = 6 s.
    """
    assert layers.style == "layers"
    assert layers.tensors.gradient_bytes.tolist() == [6.0, 4.0, 1.0]
    assert layers.order.tolist() == [0, 1, 2, 3]
    load = (layers.forward + layers.backward)[0, 0]
    assert (float(load[:2].sum()), float(load[2:].sum())) == (9.0, 15.0)
    cut = crossing(layers, [0, 1])
    assert cut == [0, 1]
    link = Link(0.5, 2.0)
    assert sum(link.seconds(layers.tensors.bytes[t]) for t in cut) == 6.0
    assert sum(link.seconds(layers.tensors.gradient_bytes[t]) for t in cut) == 6.0
    # Adam in fp32 keeps four times the parameters; two micro-batches in flight in the first stage, one in the second.
    memory = [
        4 * layers.parameter_bytes[0, s].sum() + y * layers.activation_bytes[0, s].sum()
        for s, y in (([0, 1], 2), ([2, 3], 1))
    ]
    assert memory == [4 * 30 + 2 * 12, 4 * 70 + 10]


def test_worked_operator_graph(operators: CostGraph) -> None:
    """Each forward operator shares a device with its gradient: loads 3 and 6 s, two values of eight bytes cross.

    The first operator's value crosses once although it is read on both devices; nothing has a gradient of its own,
    since the second value is the gradient. Over 8 B/s both devices pay 2 s.
    """
    assert operators.style == "operators"
    assert operators.colocation.tolist() == [0, 1, 1, 0]
    assert operators.tensors.gradient_bytes.tolist() == [0.0, 0.0, 0.0]
    assert not operators.backward.any()
    first, second = [0, 3], [1, 2]
    assert [float(operators.forward[0, 0, part].sum()) for part in (first, second)] == [3.0, 6.0]
    assert [float(operators.static_bytes[0, part].sum()) for part in (first, second)] == [100.0, 200.0]
    assert crossing(operators, first) == crossing(operators, second) == [0, 2]
    assert sum(Link(bandwidth=8.0).seconds(operators.tensors.bytes[t]) for t in crossing(operators, first)) == 2.0


# -- construction ----------------------------------------------------------------------------------------------


def test_times_take_every_shape() -> None:
    """A row, a row per kind, a full table and a mapping mean what the docstring says."""
    plain = CostGraph(forward=[1, 2], kinds=["a", "b"])
    assert plain.forward.tolist() == [[[1, 2]], [[1, 2]]]
    assert CostGraph(forward=[[1, 2], [3, 4]], kinds=["a", "b"]).forward.tolist() == [[[1, 2]], [[3, 4]]]
    assert CostGraph(forward={"a": [1, 2], "b": [3, 4]}).kinds == ("a", "b")
    partial = CostGraph(forward={"a": 1.0, "b": [3, 4]}, kinds=["b", "c", "a"])
    assert partial.forward.tolist() == [[[3, 4]], [[np.inf, np.inf]], [[1, 1]]]
    two = [Configuration(), Configuration(2)]
    assert CostGraph(forward={"a": [[1, 2], [3, 4]]}, configurations=two).forward.tolist() == [[[1, 2], [3, 4]]]
    assert CostGraph(forward=[[[1, 2], [3, 4]]], configurations=two).forward.shape == (1, 2, 2)
    assert CostGraph(forward=1.0, names=["a", "b"]).n_operators == 2
    assert CostGraph(forward=[1, 2], parameter_bytes=[[1, 2], [3, 4]], configurations=two).parameter_bytes[1, 0] == 3


def test_style_follows_from_the_costs() -> None:
    """Backward columns make a layer graph, backward flags an operator graph, neither an inference graph."""
    assert CostGraph.chain([1.0]).style == "inference"
    assert CostGraph.chain([1.0], backward=[0.0]).style == "inference"
    assert CostGraph.chain([1.0], backward_weight=[1.0]).style == "layers"
    assert CostGraph.chain([1.0, 1.0], is_backward=[0, 1], backward=1.0).style == "operators"


def test_gradients_default_to_the_style() -> None:
    """A layer graph sends back as much as forward; given sizes and times are kept."""
    rows = [Tensor(0, (1,), 5.0), Tensor(1, (2,), 5.0, 2.0, 1.0), Tensor(0, (2,), 5.0, None, 1.0, 3.0)]
    assert [
        (t.gradient_bytes, t.gradient_seconds) for t in CostGraph(forward=[1.0] * 3, backward=1.0, tensors=rows).tensors
    ] == [(5.0, None), (2.0, 1.0), (5.0, 3.0)]
    assert [(t.gradient_bytes, t.gradient_seconds) for t in CostGraph(forward=[1.0] * 3, tensors=rows).tensors] == [
        (0.0, None),
        (2.0, 0.0),
        (0.0, 3.0),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"forward": [1.0, -1.0]}, "operator #1 has forward = -1.0 on kind 'device'"),
        ({"forward": [np.nan], "names": ["mlp"]}, "operator 'mlp' has forward = nan"),
        ({"forward": [1.0], "backward": -1.0}, "has backward = -1.0"),
        ({"forward": [1.0], "parameter_bytes": -1.0}, "has parameter_bytes = -1.0"),
        ({"forward": [1.0], "static_bytes": np.inf}, "has static_bytes = inf"),
        ({"forward": ["fast"]}, "forward must hold numbers"),
        ({"forward": [[1.0], [1.0, 2.0]]}, "forward must hold numbers"),
        ({"forward": 1.0}, "one entry per operator"),
        ({"forward": [1.0], "backward": [1.0, 2.0]}, "backward has shape"),
        ({"forward": [1.0, 2.0], "activation_bytes": [1.0, 2.0, 3.0]}, "activation_bytes has shape"),
        ({"forward": {"a": [1.0]}, "backward": {"b": [1.0]}}, "kind 'b', which is not among"),
        ({"forward": [1.0], "kinds": []}, "distinct, non-empty names"),
        ({"forward": [1.0], "kinds": ["a", "a"]}, "distinct, non-empty names"),
        ({"forward": [1.0], "configurations": []}, "at least one"),
        ({"forward": [1.0], "configurations": [Configuration(), Configuration()]}, "distinct"),
        ({"forward": [1.0, 2.0], "names": ["a"]}, "1 names for 2 operators"),
        ({"forward": [1.0, 2.0], "names": ["a", "a"]}, "operators 0 and 1 are both named 'a'"),
        ({"forward": [1.0], "names": [""]}, "non-empty strings"),
        ({"forward": [1.0], "names": [5]}, "non-empty strings"),
        ({"forward": [1.0, 2.0], "colocation": ["a"]}, "1 colocation labels for 2"),
        ({"forward": [1.0, 2.0], "pinned": [0]}, "1 pinned devices for 2"),
        ({"forward": [1.0], "pinned": [0.5]}, "pinned devices must be given by position"),
        ({"forward": [1.0], "pinned": ["gpu"]}, "pinned devices must be given by position"),
        ({"forward": [1.0], "is_backward": [True, False]}, "is_backward must have shape"),
        ({"forward": [1.0, 1.0], "tensors": [Tensor(0, (2,))]}, "there is no operator 2; the graph has 2"),
        ({"forward": [1.0, 1.0], "tensors": [Tensor(0, (-1,))]}, "there is no operator -1"),
        ({"forward": [1.0, 1.0], "tensors": [Tensor("a", (1,))]}, "there is no operator 'a' .the operators"),
        ({"forward": [1.0, 1.0], "names": ["a", "b"], "tensors": [Tensor("c", (1,))]}, "there is no operator 'c'$"),
        ({"forward": [1.0, 1.0], "tensors": Tensors([0], [0, 1], [7])}, "tensor 0 names consumer 7"),
        ({"forward": [1.0, 1.0], "tensors": Tensors([9], [0, 1], [1])}, "tensor 0 names producer 9"),
        (
            {
                "forward": [1.0] * 3,
                "names": list("abc"),
                "tensors": [Tensor(0, (1,)), Tensor(1, (2,)), Tensor(2, (0,))],
            },
            "the graph has a cycle: 'a' -> 'b' -> 'c' -> 'a'",
        ),
        (
            {"forward": [1.0] * 50, "tensors": Tensors.pairs(np.arange(50), np.arange(1, 51) % 50)},
            "#0 -> #1 -> #2 -> #3 -> #4 -> #5 -> #6 -> #7 -> ...$",
        ),
    ],
)
def test_bad_graphs_are_refused(arguments: dict[str, Any], message: str) -> None:
    """Cycles, dangling references, nan and negative costs and doubled names are refused by name."""
    with pytest.raises(GraphError, match=message):
        CostGraph(**arguments)


def test_configurations_have_one_form() -> None:
    """Number types do not matter, ranges do."""
    assert repr(Configuration(np.int64(2), np.True_, 4)) == repr(Configuration(2, True, 4.0))
    for bad in ({"tensor_parallel": 0}, {"tensor_parallel": 1.5}, {"microbatch_size": -1}, {"microbatch_size": np.nan}):
        with pytest.raises(GraphError, match=r"must be|finite"):
            Configuration(**bad)


def test_colocation_labels_are_numbered_by_first_appearance() -> None:
    """Strings, numbers and arrays of the same partition give the same labels."""
    expected = [0, 1, -1, 0]
    for labels in (["b", "a", None, "b"], [7, 2, -1, 7], np.array([7, 2, -3, 7]), list(np.array([7, 2, -1, 7]))):
        assert CostGraph.chain([1.0] * 4, colocation=labels).colocation.tolist() == expected


def test_order_follows_the_edges() -> None:
    """The order is topological also where the numbering is not."""
    graph = CostGraph(forward=[1.0] * 4, tensors=[Tensor(3, (0, 1)), Tensor(1, (0,))])
    assert graph.order.tolist() == [2, 3, 1, 0]


def test_graphs_cannot_be_changed(layers: CostGraph) -> None:
    """Arrays are read-only, do not alias the caller's, and attributes cannot be set."""
    mine = np.ones(3)
    graph = CostGraph(forward=mine, parameter_bytes=mine, colocation=np.zeros(3, dtype=np.int64))
    mine[0] = 9.0
    assert graph.forward[0, 0, 0] == 1.0
    assert graph.parameter_bytes[0, 0] == 1.0
    for name in (*TIMES, *BYTES, "colocation", "pinned", "is_backward", "order"):
        array = getattr(layers, name)
        if array is not None:
            with pytest.raises(ValueError, match="read-only"):
                array[..., 0] = 1
    with pytest.raises(AttributeError):
        layers.name = "other"  # type: ignore[misc]


# -- views -----------------------------------------------------------------------------------------------------


def test_operators_are_found_by_name_and_position(layers: CostGraph) -> None:
    """Names, positions and NumPy integers name an operator; anything else is refused."""
    assert layers.index("mlp") == layers.index(2) == layers.index(np.int64(2)) == 2
    assert layers.label(2) == "'mlp'"
    assert CostGraph.chain([1.0]).label(0) == "#0"
    for bad in ("mlpp", 4, -1, True, 1.0, None):
        with pytest.raises(GraphError, match="operator"):
            layers.index(bad)  # type: ignore[arg-type]


def test_an_operator_view_has_its_costs() -> None:
    """A view shows the first configuration and leaves out kinds that cannot host it."""
    graph = CostGraph(
        forward={"a": [1.0], "b": [np.inf]},
        backward={"a": [2.0]},
        backward_input=0.5,
        parameter_bytes=3.0,
        colocation=["x"],
        pinned=[1],
        names=["op"],
    )
    operator = graph.operator("op")
    assert operator.forward == {"a": 1.0}
    assert operator.backward == {"a": 2.0}
    assert operator.backward_input == {"a": 0.5}
    assert operator.backward_weight is None
    assert (operator.parameter_bytes, operator.colocation, operator.pinned) == (3.0, 0, 1)
    with pytest.raises(GraphError, match="no costs are known for device kind 'c'"):
        graph.kind_index("c")


def test_from_operators_is_the_table_in_rows(layers: CostGraph) -> None:
    """The views of a graph build the same graph."""
    again = CostGraph.from_operators(
        [layers.operator(i) for i in range(4)], layers.tensors, kinds=layers.kinds, name=layers.name
    )
    assert again == layers


@pytest.mark.parametrize(
    ("operators", "message"),
    [
        ([Operator("a", forward="x")], "operator 'a' has forward = 'x', which is not a number"),  # type: ignore[arg-type]
        ([Operator("a", forward=None)], "operator 'a' has no forward"),  # type: ignore[arg-type]
        ([Operator("a", parameter_bytes="1 MB")], "has parameter_bytes = '1 MB'"),  # type: ignore[arg-type]
        ([Operator("a", backward_input=1.0), Operator("b")], "'b' has no backward_input; give it for every operator"),
        ([Operator("a"), Operator("a")], "both named 'a'"),
    ],
)
def test_bad_operators_are_refused(operators: list[Operator], message: str) -> None:
    """Rows with words for numbers, missing parts or doubled names are refused by name."""
    with pytest.raises(GraphError, match=message):
        CostGraph.from_operators(operators)


def test_unknown_kinds_of_operators_are_refused() -> None:
    """A kind outside the given ones is not dropped in silence."""
    with pytest.raises(GraphError, match="kind 'y', which is not among"):
        CostGraph.from_operators([Operator("a", {"y": 1.0})], kinds=["x"])


def test_graphs_may_be_empty_or_unnamed() -> None:
    """No operators, and operators without names, are graphs too."""
    for empty in (CostGraph(forward=[]), CostGraph.from_operators([]), CostGraph.chain([])):
        assert (empty.n_operators, empty.n_tensors, empty.style) == (0, 0, "inference")
        assert CostGraph.from_json(empty.to_json()) == empty
        assert empty.summary()


def test_replace_changes_one_thing(layers: CostGraph) -> None:
    """Everything else stays, and an unknown field is refused."""
    other = layers.replace(name="x", forward=[2.0] * 4)
    assert (other.name, other.forward.sum(), other.names) == ("x", 8.0, layers.names)
    assert layers.replace() == layers
    with pytest.raises(GraphError, match="no field 'forwards'"):
        layers.replace(forwards=1)


def test_the_hash_is_the_content(layers: CostGraph) -> None:
    """Name and source do not matter; structure, costs and operator names do."""
    assert layers.replace(name="x", source={"a": 1}).hash == layers.hash
    assert hash(layers.replace(name="x")) == hash(layers)
    changes: list[dict[str, Any]] = [
        {key: getattr(layers, key) + 1.0} for key in ("forward", "backward", "parameter_bytes", "static_bytes")
    ]
    changes += [
        {"names": None}, {"kinds": ["other"]}, {"pinned": [0, -1, -1, -1]}, {"colocation": ["a", "a", None, None]},
        {"is_backward": [0, 0, 0, 1]}, {"tensors": layers.tensors[:2]}, {"configurations": [Configuration(2)]},
        {"backward_input": 1.0},
    ]  # fmt: skip
    hashes = [layers.replace(**change).hash for change in changes]
    assert len({*hashes, layers.hash}) == len(changes) + 1


@given(data=st.data())
def test_copies_are_equal(graphs: st.SearchStrategy[CostGraph], data: st.DataObject) -> None:
    """Pickling, deep copying and replacing nothing keep the hash."""
    graph = data.draw(graphs)
    for other in (pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph), graph.replace()):
        assert other == graph
        assert other.order.tolist() == graph.order.tolist()
        assert not other.forward.flags.writeable


@given(data=st.data())
def test_the_order_puts_producers_first(graphs: st.SearchStrategy[CostGraph], data: st.DataObject) -> None:
    """Every tensor's producer comes before its readers."""
    graph = data.draw(graphs)
    place = np.argsort(graph.order)
    assert sorted(graph.order.tolist()) == list(range(graph.n_operators))
    assert (place[graph.tensors.edge_producer] < place[graph.tensors.consumers]).all()


def test_the_summary_has_the_totals(layers: CostGraph) -> None:
    """People see size, times and bytes."""
    text = layers.summary()
    for part in (
        "'four layers'",
        "4 operators, 3 tensors, layers",
        "forward 8 s, backward 16 s",
        "parameter_bytes 100",
    ):
        assert part in text


def test_a_million_unnamed_operators_are_cheap() -> None:
    """A chain of a million operators keeps constant columns as one number each."""
    graph = CostGraph.chain(np.ones(1_000_000), bytes=1.0, backward=2.0)
    assert graph.backward.base is not None
    assert graph.backward.strides == (0, 0, 0)
    assert graph.parameter_bytes.strides[-1] == 0
    assert graph.order[-1] == 999_999


@pytest.mark.parametrize("absent", [-1.0, np.nan])
def test_colocation_columns_of_floats_mark_absence_as_well(absent: float) -> None:
    """Tables from other tools hold floats: -1 or nan is no label that operators could share."""
    graph = CostGraph.chain([1.0, 1.0, 1.0, 1.0], colocation=np.array([absent, 3.0, absent, 3.0]))
    assert graph.colocation.tolist() == [-1, 0, -1, 0]


@pytest.mark.parametrize("size", [0, -1.0, float("inf"), float("nan")])
def test_micro_batches_of_no_samples_are_refused(size: float) -> None:
    """As in plans; None stands for a size that is not known."""
    with pytest.raises(GraphError, match="microbatch_size must be positive"):
        Configuration(microbatch_size=size)
    assert Configuration(microbatch_size=None).microbatch_size is None


def test_a_kind_hosts_what_has_both_times_there() -> None:
    """The constructor and rows agree: a kind without a backward time hosts nothing, and every view says so."""
    tables = CostGraph(
        forward={"a": [1.0, 1.0, np.inf], "b": [2.0, 2.0, 2.0]},
        backward={"a": [4.0, 4.0, 4.0], "b": [np.inf, 8.0, 8.0]},
        names=["x", "y", "z"],
    )
    rows = CostGraph.from_operators(
        [
            Operator("x", {"a": 1.0, "b": 2.0}, {"a": 4.0}),
            Operator("y", {"a": 1.0, "b": 2.0}, {"a": 4.0, "b": 8.0}),
            Operator("z", {"b": 2.0}, {"a": 4.0, "b": 8.0}),
        ]
    )
    for graph in (tables, rows):
        assert graph.hosts.tolist() == [[[True, True, False]], [[False, True, True]]]
        assert not graph.hosts.flags.writeable
        assert (graph.operator("x").forward, graph.operator("x").backward) == ({"a": 1.0}, {"a": 4.0})
        assert (graph.operator("z").forward, graph.operator("z").backward) == ({"b": 2.0}, {"b": 8.0})
        assert "a: hosts 2, forward 2 s, backward 8 s" in graph.summary()
        assert "b: hosts 2, forward 4 s, backward 16 s" in graph.summary()
    assert rows == tables


def test_infinity_is_no_backward_time() -> None:
    """A kind that hosts nothing does not make a training graph."""
    graph = CostGraph.from_operators([Operator("x", {"a": 1.0}, {"a": 0.0})], kinds=["a", "b"])
    assert graph.style == "inference"
