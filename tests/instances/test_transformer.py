"""Transformers: published sizes, published formulas, and granularities that agree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance.problems.instances.catalogue import DeviceKind
from balance.problems.instances.roofline import Roofline
from balance.problems.instances.shapes import PUBLISHED_MODELS, TransformerShape, published_model
from balance.problems.instances.transformer import language_model, shape_graph, transformer
from balance.problems.instances.transformer_work import Pieces
from balance.problems.model.errors import OptionError
from balance.problems.model.graph import CostGraph

TINY: dict[str, Any] = {"layers": 3, "hidden": 48, "heads": 6, "vocabulary": 100, "sequence": 16, "microbatch": 2}

# Parameters as their authors (gpt2-xl: its released weights) round them, and as the released weights count them.
SIZES = {
    "gpt2-small": (124e6, 124_439_808),
    "gpt2-medium": (355e6, 354_823_168),
    "gpt2-xl": (1.56e9, 1_557_611_200),
    "llama-2-7b": (6.7e9, 6_738_415_616),
    "llama-2-70b": (69e9, 68_976_648_192),
    "llama-3.1-8b": (8.03e9, 8_030_261_248),
    "llama-3.1-70b": (70.6e9, 70_553_706_496),
    "llama-3.1-405b": (405e9, 405_853_388_800),
    "mixtral-8x7b": (46.7e9, 46_702_792_704),
}


@st.composite
def pieces(draw: st.DrawFn, *, experts: bool | None = None) -> Pieces:
    """Draw a small model and how it is run."""
    heads, width = draw(st.sampled_from([2, 4, 8])), draw(st.integers(1, 8))
    mixture = draw(st.booleans()) if experts is None else experts
    shape = TransformerShape(
        layers=draw(st.integers(1, 4)),
        hidden=heads * width,
        heads=heads,
        vocabulary=draw(st.integers(1, 50)),
        ffn_hidden=draw(st.integers(1, 40)),
        kv_heads=draw(st.sampled_from([heads, heads // 2, 1])),
        gated=draw(st.booleans()),
        experts=draw(st.integers(2, 4)) if mixture else 0,
        top_k=draw(st.integers(1, 2)),
        biases=draw(st.booleans()),
        tied=draw(st.booleans()),
    )
    return Pieces(
        shape,
        draw(st.integers(1, 12)),
        draw(st.integers(1, 3)),
        draw(st.sampled_from([2, 4])),
        dropout=draw(st.booleans()),
        fused=draw(st.booleans()),
    )


# -- published numbers -----------------------------------------------------------------------------------------


def test_every_published_model_has_a_known_size() -> None:
    """A model that is added brings its size to this test."""
    assert set(SIZES) == set(PUBLISHED_MODELS)


@pytest.mark.parametrize("name", SIZES)
def test_published_parameter_counts(name: str) -> None:
    """The count is that of the released weights, and within 2 % of what its authors say."""
    said, exact = SIZES[name]
    shape = published_model(name).shape
    assert shape.n_parameters == exact
    assert abs(shape.n_parameters - said) <= 0.02 * said


@pytest.mark.parametrize("name", SIZES)
def test_the_graph_holds_what_the_shape_says(name: str) -> None:
    """Parameter bytes of the graph are two per parameter, and a tied matrix is held at both ends."""
    shape = published_model(name).shape
    graph = language_model(model=name)
    copy = shape.vocabulary * shape.hidden if shape.tied else 0
    assert graph.n_operators == shape.layers + 2
    assert graph.parameter_bytes.sum() == 2 * (shape.n_parameters + copy)
    assert graph.source["n_parameters"] == shape.n_parameters


@given(pieces())
def test_operators_hold_what_the_shape_says(run: Pieces) -> None:
    """The closed formula of the shape and the operators count the same parameters."""
    rows, _, _ = run.block()
    assert sum(row.parameters for row in rows) == run.shape.block_parameters
    outer = sum(row.parameters for row in (*run.embedding(), *run.head(training=True)))
    untied = replace(run.shape, tied=False)
    assert outer == untied.n_parameters - untied.layers * untied.block_parameters


@pytest.mark.parametrize("degree", [1, 2, 4])
def test_activations_follow_the_published_formula(degree: int) -> None:
    """Dense, fp16, with dropout: ``s b h (10 + 24 / t + 5 a s / (h t))``, which is ``s b h (34 + 5 a s / h)`` alone."""
    s, b, h, a = 128, 3, 256, 8
    shape = TransformerShape(2, h, a, 1000, 4 * h)
    rows, _, _ = Pieces(shape, s, b, 2, degree).block()
    assert sum(row.kept_bytes for row in rows) == pytest.approx(
        s * b * h * (10 + 24 / degree + 5 * a * s / (h * degree)), rel=1e-12
    )


def test_activations_at_the_ends_follow_the_published_formula() -> None:
    """Embedding dropout ``s b h``; final norm, logits and loss ``4 s b h (1 + V / h)`` (Korthikanti et al., 4.3)."""
    run = Pieces(TransformerShape(2, 256, 8, 1000, 1024), 128, 3, 2)
    assert sum(row.kept_bytes for row in run.embedding()) == 128 * 3 * 256
    assert sum(row.kept_bytes for row in run.head(training=True)) == 4 * 128 * 3 * 256 * (1 + 1000 / 256)


def test_flops_follow_the_published_formula() -> None:
    """Products of a dense block have ``24 b s h^2 + 4 b s^2 h`` FLOP forward and twice as many backward."""
    s, b, h = 128, 3, 256
    rows, _, _ = Pieces(TransformerShape(2, h, 8, 1000, 4 * h), s, b, 2).block()
    products = [row for row in rows if row.name in ("qkv", "scores", "context", "projection", "up", "down")]
    forward = sum(row.forward.flops for row in products)
    assert forward == 24 * b * s * h**2 + 4 * b * s**2 * h
    assert sum(row.input_gradient.flops + row.weight_gradient.flops for row in products) == 2 * forward


def test_fused_attention_does_not_keep_scores() -> None:
    """It keeps queries, keys, values and a row sum each, and its backward pass has five products for two."""
    shape = TransformerShape(2, 256, 8, 1000, 1024)
    by_name = {row.name: row for row in Pieces(shape, 128, 3, 2, fused=True).block()[0]}
    work = by_name["attention"]
    assert work.kept_bytes == 2 * 3 * 128 * 3 * 256 + 4 * 8 * 128 * 3
    softmax = 5 * 3 * 8 * 128**2
    assert work.input_gradient.flops - 2 * softmax == 2.5 * (work.forward.flops - softmax)
    assert not {"scores", "softmax", "context"} & set(by_name)


# -- structure -------------------------------------------------------------------------------------------------


@given(pieces(), st.booleans())
def test_granularities_agree(run: Pieces, training: bool) -> None:
    """Coarser operators are the sums of finer ones, and their boundary tensors are the finer ones that cross."""
    graphs = {
        granularity: shape_graph(
            run.shape,
            sequence=run.sequence,
            microbatch=run.microbatch,
            training=training,
            granularity=granularity,
            dropout=run.dropout,
            fused_attention=run.fused,
            kinds=["a100-80gb", "h100"],
        )
        for granularity in ("block", "sublayer", "operator")
    }
    fine = graphs["operator"]
    assert fine.names is not None
    block = graphs["block"]
    ends = {"embedding": 0, "final_norm": block.n_operators - 1, "logits": block.n_operators - 1}
    ends["loss"] = block.n_operators - 1
    group = np.array([ends[name] if name in ends else 1 + int(name.split(".")[1]) for name in fine.names])
    for table in ("forward", "backward", "backward_input", "parameter_bytes", "activation_bytes"):
        mine, other = getattr(fine, table), getattr(block, table)
        if mine is None:
            assert other is None
            continue
        for i in range(block.n_operators):
            assert np.allclose(mine[..., group == i].sum(axis=-1), other[..., i], rtol=1e-12)
        assert np.allclose(getattr(graphs["sublayer"], table).sum(axis=-1), other.sum(axis=-1), rtol=1e-12)
    stream = 2 * run.tokens * run.shape.hidden
    for b in range(block.n_tensors):
        reached = np.array([(group[fine.tensors.consumers_of(t)] > b).any() for t in range(fine.n_tensors)])
        crossing = np.flatnonzero((group[fine.tensors.producer] <= b) & reached)
        assert fine.tensors.bytes[crossing].tolist() == [stream] == [block.tensors.bytes[b]]


@given(pieces())
def test_operators_form_one_dag_from_embedding_to_loss(run: Pieces) -> None:
    """Every operator is on a way from the only source to the only sink, and numbered in topological order."""
    graph = shape_graph(run.shape, sequence=run.sequence, granularity="operator", fused_attention=run.fused)
    producers, readers = set(graph.tensors.producer.tolist()), set(graph.tensors.consumers.tolist())
    everything = set(range(graph.n_operators))
    assert everything - readers == {graph.index("embedding")}
    assert everything - producers == {graph.index("loss")}
    assert graph.order.tolist() == sorted(everything)


def test_residual_connections_are_there() -> None:
    """A dense block is read at its norm and past it; both ways meet in the additions."""
    graph = transformer(**TINY, granularity="operator", gated=True)
    dag = networkx.relabel_nodes(graph.to_networkx(), dict(enumerate(graph.names or ())))
    block = "blocks.1."
    assert set(dag.successors("blocks.0.add2")) == {block + "norm1", block + "add1"}
    assert set(dag.predecessors(block + "add1")) == {"blocks.0.add2", block + "projection"}
    assert set(dag.successors(block + "add1")) == {block + "norm2", block + "add2"}
    assert set(dag.predecessors(block + "context")) == {block + "softmax", block + "qkv"}
    assert set(dag.predecessors("final_norm")) == {"blocks.2.add2"}
    sizes = {(t.producer, t.consumers): t.bytes for t in graph.tensors}
    up, activation = graph.index(block + "up"), graph.index(block + "activation")
    assert sizes[up, (activation,)] == 2 * 2 * 16 * 2 * 4 * 48  # two arrays of ffn width


def test_experts_are_operators_of_their_own() -> None:
    """Each of four experts gets half of the tokens' copies for top_k = 2, and holds its own matrices."""
    graph = transformer(**TINY, granularity="operator", experts=4, top_k=2, biases=False)
    dense = transformer(**TINY, granularity="operator", biases=False)
    dispatch = graph.index("blocks.0.dispatch")
    sent = [t for t in graph.tensors if t.producer == dispatch]
    assert [graph.names[t.consumers[0]] for t in sent] == [f"blocks.0.expert{i}.up" for i in range(4)]  # type: ignore[index]
    assert [t.bytes for t in sent] == [2 * 16 * 2 * 48 / 2] * 4
    mine = graph.parameter_bytes[0, graph.index("blocks.0.expert3.up")]
    assert mine == dense.parameter_bytes[0, dense.index("blocks.0.up")]
    names = transformer(**TINY, granularity="sublayer", experts=4).names
    assert names is not None
    assert names[:3] == ("embedding", "blocks.0.attention", "blocks.0.experts")


# -- configurations --------------------------------------------------------------------------------------------


def test_recomputation_keeps_the_input_of_each_block() -> None:
    """Blocks keep ``2 s b h`` bytes and run forward again; embedding and head stay as they are."""
    graph = transformer(**TINY, recomputation=True)
    plain, again = range(2)
    assert [c.recompute for c in graph.configurations] == [False, True]
    blocks = slice(1, 4)
    assert graph.activation_bytes[again, blocks].tolist() == [2 * 16 * 2 * 48] * 3
    assert np.allclose(
        graph.backward[0, again, blocks], graph.backward[0, plain, blocks] + graph.forward[0, plain, blocks]
    )
    held = graph.activation_bytes + graph.workspace_bytes
    assert np.allclose(held[again], held[plain])
    for end in (0, 4):
        assert graph.backward[0, again, end] == graph.backward[0, plain, end]
        assert graph.activation_bytes[again, end] == graph.activation_bytes[plain, end]


def test_tensor_parallel_partners_share_the_work() -> None:
    """Without starts and with infinite links, products take half the time; with slow links nothing is gained."""
    shape: dict[str, Any] = {"layers": 2, "hidden": 1024, "heads": 16, "vocabulary": 1000, "sequence": 1024}
    peak = {"bf16": 1e12}
    fast = DeviceKind("fast", peak, 1e12, 1e15, 1e15, "a test whose links cost nothing")
    slow = DeviceKind("slow", peak, 1e12, 1e15, 1e6, "a test whose links cost everything")
    graph = transformer(**shape, kinds=[fast, slow], tensor_parallel=[1, 2], roofline={"launch_seconds": 0.0})
    assert [c.tensor_parallel for c in graph.configurations] == [1, 2]
    assert graph.forward[0, 1, 1] == pytest.approx(graph.forward[0, 0, 1] / 2, rel=0.01)
    assert graph.forward[1, 1, 1] > 2 * graph.forward[1, 0, 1]
    stream = 2 * 1024 * 1024
    reduced = graph.forward[1, 1, 1] - graph.forward[0, 1, 1]
    assert reduced == pytest.approx(2 * 2 * stream / 2 / (0.8 * 1e6), rel=1e-3)  # two all-reduces forward
    assert graph.parameter_bytes[1, 1] == pytest.approx(graph.parameter_bytes[0, 1] / 2, rel=0.01)
    both = transformer(**shape, tensor_parallel=[1, 2], recomputation=True)
    assert [(c.tensor_parallel, c.recompute) for c in both.configurations] == [
        (1, False),
        (2, False),
        (1, True),
        (2, True),
    ]


def test_partners_share_heads_that_are_too_few() -> None:
    """With one head of keys and values, each of two partners holds it whole."""
    graph = transformer(**TINY, kv_heads=1, biases=False, tensor_parallel=[1, 2], granularity="operator")
    at = graph.index("blocks.0.qkv")
    assert graph.parameter_bytes[:, at].tolist() == [2 * 48 * (48 + 16), 2 * 48 * (24 + 16)]


def test_tensors_do_not_depend_on_the_first_degree() -> None:
    """A graph of degree 2 alone has the tensors of the graph of degree 1."""
    graphs = [transformer(**TINY, tensor_parallel=t, granularity="operator") for t in (1, 2)]
    assert graphs[0].tensors.bytes.tolist() == graphs[1].tensors.bytes.tolist()


def test_inference_has_no_backward_pass() -> None:
    """An inference graph ends with the logits, keeps nothing, and sends no gradients."""
    graph = transformer(**TINY, training=False, granularity="operator")
    assert graph.style == "inference"
    assert graph.names is not None
    assert graph.names[-1] == "logits"
    assert not graph.activation_bytes.any()
    assert not graph.sync_bytes.any()
    assert not graph.tensors.gradient_bytes.any()


def test_training_graph_is_a_layer_graph(tmp_path: Path) -> None:
    """Gradients are as large as tensors, the parts add up, and the file gives the same graph and source."""
    graph = transformer(**TINY, roofline=Roofline(compute_efficiency=0.4))
    assert graph.style == "layers"
    assert graph.tensors.gradient_bytes.tolist() == graph.tensors.bytes.tolist()
    assert graph.backward_input is not None
    assert graph.backward_weight is not None
    assert np.array_equal(graph.backward, graph.backward_input + graph.backward_weight)
    assert graph.source["roofline"]["compute_efficiency"] == 0.4
    graph.save(tmp_path / "graph.json")
    again = CostGraph.load(tmp_path / "graph.json")
    assert again == graph
    assert again.source == graph.source


def test_faster_devices_take_less_time() -> None:
    """Every operator of a large model is faster on an H100 than on an A100, and bytes do not depend on the kind."""
    graph = language_model(model="llama-2-7b", kinds=["a100-80gb", "h100"])
    assert (graph.forward[1] < graph.forward[0]).all()
    assert graph.kinds == ("a100-80gb", "h100")


def test_the_same_call_gives_the_same_graph() -> None:
    """Nothing is random."""
    assert transformer(**TINY).hash == transformer(**TINY).hash
    assert transformer(**TINY).hash != transformer(**{**TINY, "sequence": 17}).hash


# -- wrong input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": 0}, "layers must be between 1"),
        ({"layers": 2.5}, "layers must be a whole number"),
        ({"layers": "many"}, "layers must be a whole number"),
        ({"layers": True}, "layers must be a whole number"),
        ({"layers": float("nan")}, "layers must be a whole number"),
        ({"layers": 10**400}, "layers must be between"),
        ({"layers": 10**11}, "at most 20000000"),
        ({"experts": 10**9, "granularity": "operator"}, "at most 20000000"),
        ({"hidden": 50}, "hidden = 50 is not divisible by heads = 6"),
        ({"kv_heads": 4}, "heads = 6 is not divisible by kv_heads = 4"),
        ({"experts": 1}, "top_k = 2 of 1 experts"),
        ({"ffn_multiplier": 0}, "ffn_multiplier must be above 0"),
        ({"precision": "bf61"}, "did you mean 'bf16'"),
        ({"precision": ["bf16"]}, "precision cannot be"),
        ({"granularity": "blocks"}, "did you mean 'block'"),
        ({"kinds": ["v100-32gb"]}, "does not calculate in bf16"),
        ({"kinds": []}, "kinds must not be empty"),
        ({"tensor_parallel": 4}, "does not divide the 6 attention heads"),
        ({"tensor_parallel": 3, "kv_heads": 2}, "neither divides nor is a multiple"),
        ({"tensor_parallel": [1, 1]}, "twice"),
        ({"training": "no"}, "training must be true or false"),
        ({"training": False, "recomputation": True}, "recomputation= has no meaning"),
        ({"granularity": "operator", "recomputation": True}, "needs granularity block or sublayer"),
        ({"positions": 8}, "longer than the 8 learned positions"),
        ({"roofline": {"compute_eficiency": 0.5}}, "did you mean 'compute_efficiency'"),
        ({"roofline": 0.5}, "roofline must be a Roofline or a mapping"),
    ],
)
def test_wrong_arguments_are_named(change: dict[str, Any], message: str) -> None:
    """Each bad argument is an error that says which one and what would do."""
    with pytest.raises(OptionError, match=message):
        transformer(**{**TINY, **change})


def test_unknown_models_give_the_nearest() -> None:
    """A misspelt model is an error that helps; a sequence beyond the learned positions is refused."""
    with pytest.raises(OptionError, match="did you mean 'gpt2-small'"):
        language_model(model="gpt2-smal")
    with pytest.raises(OptionError, match="1024 learned positions"):
        language_model(model="gpt2-small", sequence=2048)
