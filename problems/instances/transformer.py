"""Instances room: cost graphs of transformer language models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from balance.problems.instances.arguments import choice, flag, real, settings, several, size, whole
from balance.problems.instances.catalogue import ELEMENT_BYTES, DeviceKind, device_kinds, element_bytes
from balance.problems.instances.roofline import CostTables, Roofline, cost_tables
from balance.problems.instances.shapes import TransformerShape, published_model
from balance.problems.instances.transformer_work import Net, Pieces
from balance.problems.model.errors import OptionError
from balance.problems.model.graph import Configuration, CostGraph
from balance.problems.model.tensors import IntArray, Tensors

GRANULARITIES = ("block", "sublayer", "operator")


def transformer(
    *,
    layers: int,
    hidden: int,
    heads: int,
    vocabulary: int,
    sequence: int,
    microbatch: int = 1,
    kv_heads: int | None = None,
    ffn_multiplier: float = 4.0,
    ffn_hidden: int | None = None,
    gated: bool = False,
    experts: int = 0,
    top_k: int = 2,
    biases: bool = True,
    tied: bool = False,
    positions: int = 0,
    precision: str = "bf16",
    kinds: str | DeviceKind | Sequence[str | DeviceKind] = ("a100-80gb",),
    training: bool = True,
    granularity: str = "block",
    tensor_parallel: int | Sequence[int] = (1,),
    recomputation: bool = False,
    dropout: bool = True,
    fused_attention: bool = False,
    roofline: Roofline | Mapping[str, Any] | None = None,
) -> CostGraph:
    """Return the cost graph of a transformer language model of a given shape: embedding, blocks, head.

    Times come from `balance.problems.instances.roofline`, bytes from
    `balance.problems.instances.transformer_work`; both state their formulas. Nothing is random.

    Parameters
    ----------
    layers, hidden, heads, vocabulary, kv_heads, gated, experts, top_k, biases, tied, positions
        The model, see `balance.problems.instances.shapes.TransformerShape`.
    ffn_multiplier, ffn_hidden
        Width inside the feed-forward part (of each expert): `ffn_hidden`, or, where that is not given,
        ``ffn_multiplier * hidden`` rounded to a whole number.
    sequence
        Tokens per sample.
    microbatch
        Samples per micro-batch.
    precision
        Of arithmetic, parameters, activations and gradients: fp64, fp32, tf32, bf16 or fp16.
    kinds
        Device kinds, by their names in the catalogue or as `DeviceKind`; each must calculate in `precision`.
    training
        A layer graph with a backward pass, or an inference graph that ends with the logits.
    granularity
        ``"block"``: embedding, blocks, head, a chain. ``"sublayer"``: blocks in two halves, still a chain.
        ``"operator"``: a DAG with the residual connections (and each expert).
    tensor_parallel
        Degrees; each is a configuration whose costs are those of one of the devices that share the operators, with
        its all-reduces among devices of one host. A degree must divide `heads`, and divide `kv_heads` or be a multiple
        of it. Norms, residual additions and routers are done by all of them; widths are rounded up to be divisible.
        Tensors inside a block keep the size that they have on a device alone.
    recomputation
        Add to each degree a configuration in which blocks (or their halves) keep their input only and run their forward
        pass again in the backward pass. Embedding and head keep what they keep. Not at operator granularity.
    dropout
        Whether the model is trained with dropout; its masks are kept. Without training there is none.
    fused_attention
        Whether attention avoids writing its scores to memory.
    roofline
        The fractions of the peak that are reached, as `Roofline` or as a mapping of its fields.

    Returns
    -------
    CostGraph
        Operators are named ``embedding``, ``blocks.0`` (or ``blocks.0.attention``, or ``blocks.0.qkv``), ``head``.
        Costs are per micro-batch. A head that is tied to the embedding has a copy of the matrix, as pipeline runtimes
        keep it; `TransformerShape.n_parameters`, noted in the graph's source, counts it once.

    Raises
    ------
    OptionError
        If an argument is out of range or does not fit another one.

    Examples
    --------
    >>> graph = transformer(layers=2, hidden=64, heads=4, vocabulary=1000, sequence=128)
    >>> graph.names, graph.style
    (('embedding', 'blocks.0', 'blocks.1', 'head'), 'layers')
    """
    width = real("ffn_multiplier", ffn_multiplier, above=0.0) * whole("hidden", hidden)
    shape = TransformerShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        vocabulary=vocabulary,
        ffn_hidden=max(1, round(width)) if ffn_hidden is None else ffn_hidden,
        kv_heads=kv_heads,
        gated=gated,
        experts=experts,
        top_k=top_k,
        biases=biases,
        tied=tied,
        positions=positions,
    )
    return shape_graph(
        shape,
        sequence=sequence,
        microbatch=microbatch,
        precision=precision,
        kinds=kinds,
        training=training,
        granularity=granularity,
        tensor_parallel=tensor_parallel,
        recomputation=recomputation,
        dropout=dropout,
        fused_attention=fused_attention,
        roofline=roofline,
        name="transformer",
    )


def language_model(
    *,
    model: str,
    sequence: int | None = None,
    microbatch: int = 1,
    precision: str = "bf16",
    kinds: str | DeviceKind | Sequence[str | DeviceKind] = ("a100-80gb",),
    training: bool = True,
    granularity: str = "block",
    tensor_parallel: int | Sequence[int] = (1,),
    recomputation: bool = False,
    dropout: bool | None = None,
    fused_attention: bool = False,
    roofline: Roofline | Mapping[str, Any] | None = None,
) -> CostGraph:
    """Return the cost graph of a published language model, by its name.

    Parameters
    ----------
    model
        gpt2-small, gpt2-medium, gpt2-xl, llama-2-7b, llama-2-70b, llama-3.1-8b, llama-3.1-70b, llama-3.1-405b or
        mixtral-8x7b.
    sequence
        Tokens per sample; None: as in `balance.problems.instances.shapes.PUBLISHED_MODELS`.
    dropout
        Whether there is dropout; None: as the model was trained.
    microbatch, precision, kinds, training, granularity, tensor_parallel, recomputation, fused_attention, roofline
        As in `transformer`.

    Raises
    ------
    OptionError
        If there is no such model, or as `transformer`.

    Examples
    --------
    >>> language_model(model="llama-3.1-405b").n_operators
    128
    """
    published = published_model(model)
    return shape_graph(
        published.shape,
        sequence=published.sequence if sequence is None else sequence,
        microbatch=microbatch,
        precision=precision,
        kinds=kinds,
        training=training,
        granularity=granularity,
        tensor_parallel=tensor_parallel,
        recomputation=recomputation,
        dropout=published.dropout if dropout is None else dropout,
        fused_attention=fused_attention,
        roofline=roofline,
        name=model,
    )


def shape_graph(
    shape: TransformerShape,
    *,
    sequence: int,
    microbatch: int = 1,
    precision: str = "bf16",
    kinds: str | DeviceKind | Sequence[str | DeviceKind] = ("a100-80gb",),
    training: bool = True,
    granularity: str = "block",
    tensor_parallel: int | Sequence[int] = (1,),
    recomputation: bool = False,
    dropout: bool = True,
    fused_attention: bool = False,
    roofline: Roofline | Mapping[str, Any] | None = None,
    name: str = "transformer",
) -> CostGraph:
    """Return the cost graph of a transformer of a `TransformerShape`; the other arguments are those of `transformer`.

    Raises
    ------
    OptionError
        As `transformer`.
    """
    chosen, law = device_kinds(kinds), settings("roofline", Roofline, roofline)
    choice("granularity", granularity, GRANULARITIES)
    choice("precision", precision, tuple(ELEMENT_BYTES))
    tokens, samples = whole("sequence", sequence), whole("microbatch", microbatch)
    if shape.positions and tokens > shape.positions:
        raise OptionError(f"sequence = {tokens} is longer than the {shape.positions} learned positions of the model")
    trains = flag("training", training)
    again = flag("recomputation", recomputation)
    if again and not trains:
        raise OptionError("recomputation= has no meaning with training=false: inference has no backward pass")
    if again and granularity == "operator":
        raise OptionError(
            "recomputation= needs granularity block or sublayer: an operator alone has nothing to recompute"
        )
    size("the model", shape.layers * (20 + 3 * shape.experts))
    degrees = _degrees(shape, tensor_parallel)
    pieces = [
        Pieces(
            shape,
            tokens,
            samples,
            element_bytes(precision),
            degree,
            flag("dropout", dropout) and trains,
            flag("fused_attention", fused_attention),
        )
        for degree in degrees
    ]
    columns = [Configuration(degree, False, samples) for degree in degrees]
    embedding, head = (
        cost_tables([rows(p) for p in pieces], columns, chosen, precision, law)
        for rows in (Pieces.embedding, lambda p: p.head(training=trains))
    )
    block = cost_tables([p.block()[0] for p in pieces], columns, chosen, precision, law)
    alone = replace(pieces[0], degree=1)  # tensors have one size for all configurations
    works, nets, second = alone.block()
    stream = alone.element * alone.stream
    if granularity == "operator":
        ends = [row.name for row in alone.head(training=trains)]
        parts = [f"blocks.{i}.{row.name}" for i in range(shape.layers) for row in works]
        names = ["embedding", *parts, *ends]
        tensors = _tensors(nets, len(works), shape.layers, alone, len(ends))
    else:
        starts = [0] if granularity == "block" else [0, second]
        block, head = block.grouped(np.array(starts)), head.grouped(np.array([0]))
        halves = [""] if granularity == "block" else [".attention", ".experts" if shape.experts else ".feed_forward"]
        names = ["embedding", *(f"blocks.{i}{half}" for i in range(shape.layers) for half in halves), "head"]
        steps = np.arange(len(names) - 1, dtype=np.int64)
        tensors = Tensors.pairs(steps, steps + 1, stream)
    if again:
        columns += [Configuration(degree, True, samples) for degree in degrees]
        embedding, head = (part.with_recomputation(False, 0.0) for part in (embedding, head))
        block = block.with_recomputation(True, stream)
    tables = _joined(embedding, block, head, shape.layers)
    return CostGraph(
        **tables.columns(training=trains),
        kinds=[kind.name for kind in chosen],
        configurations=columns,
        names=names,
        tensors=tensors,
        name=name,
        source={
            "generator": "transformer",
            "model": dict(vars(shape)),
            "n_parameters": shape.n_parameters,
            "forward_flops": float(tables.flops[0].sum()),
            "sequence": tokens,
            "precision": precision,
            "granularity": granularity,
            "dropout": bool(dropout) and trains,
            "fused_attention": bool(fused_attention),
            "roofline": law.to_json(),
            "device_kinds": {kind.name: kind.source for kind in chosen},
        },
    )


def _degrees(shape: TransformerShape, asked: int | Sequence[int]) -> tuple[int, ...]:
    degrees = tuple(whole("tensor_parallel", degree) for degree in several("tensor_parallel", asked))
    for degree in degrees:
        if shape.heads % degree:
            raise OptionError(f"tensor_parallel = {degree} does not divide the {shape.heads} attention heads")
        if shape.groups % degree and degree % shape.groups:
            raise OptionError(
                f"tensor_parallel = {degree} neither divides nor is a multiple of the {shape.groups} heads of keys and "
                f"values"
            )
    return degrees


def _joined(embedding: CostTables, block: CostTables, head: CostTables, layers: int) -> CostTables:
    """Return the tables of embedding, blocks and head in a row."""
    rows = np.tile(np.arange(block.forward.shape[-1]), layers)
    parts = [vars(table) for table in (embedding, block.take(rows), head)]
    return CostTables(**{key: np.concatenate([part[key] for part in parts], axis=-1) for key in parts[0]})


def _tensors(nets: Sequence[Net], width: int, layers: int, alone: Pieces, tail: int) -> Tensors:
    """Return the tensors of the embedding, `layers` blocks of `width` operators, and `tail` operators at the end."""
    bases: IntArray = 1 + width * np.arange(layers, dtype=np.int64)
    # The input of a block comes from the operator just before its first one, which is what base + ENTRY is.
    producer = (bases[:, None] + np.array([net.producer for net in nets])).ravel()
    pins = np.array([len(net.consumers) for net in nets])
    consumers = (bases[:, None] + np.array([c for net in nets for c in net.consumers])).ravel()
    numbers = np.tile([net.numbers for net in nets], layers)
    end = 1 + width * layers
    last = np.arange(end - 1, end - 1 + tail)  # the last block, the final norm and the logits, each read by the next
    sizes = [alone.stream, alone.stream, alone.tokens * alone.vocabulary][:tail]
    counts = np.concatenate([np.tile(pins, layers), np.ones(tail, dtype=np.int64)])
    return Tensors(
        np.concatenate([producer, last]),
        np.concatenate([[0], np.cumsum(counts)]),
        np.concatenate([consumers, last + 1]),
        alone.element * np.concatenate([numbers, sizes]),
    )
