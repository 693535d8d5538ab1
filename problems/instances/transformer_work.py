"""Instances room: the operators of a transformer, the work of each and the tensors between them.

With s tokens per sample, b samples per micro-batch, hidden width h, a attention heads, V tokens in the vocabulary and e
bytes per number, what is kept from forward to backward follows Korthikanti et al. [1]_ (section 4), who count for
fp16 (e = 2), a dense block with a feed-forward width of 4h, dropout, as many heads of keys as of queries, and attention
whose scores are written to memory:

========================  =====================================  =====================================
operator                  keeps                                  bytes
========================  =====================================  =====================================
norm1, norm2              input                                  e s b h each
qkv                       input                                  e s b h
scores                    queries, keys                          2 e s b h
softmax                   probabilities, mask, dropped out ones  (2 e + 1) a s^2 b
context                   values                                 e s b h
projection                input, dropout mask                    (e + 1) s b h
up                        input                                  e s b h
activation                input                                  4 e s b h
down                      input, dropout mask                    (4 e + 1) s b h
embedding                 dropout mask                           s b h
final_norm, logits        input                                  e s b h each
loss                      logits in fp32                         4 s b V
========================  =====================================  =====================================

For e = 2 a block adds up to ``s b h (34 + 5 a s / h)``. With t tensor-parallel partners it is
``s b h (10 + 24 / t + 5 a s / (h t))`` (equation 2 there). Other precisions, widths, fewer heads of keys and values,
gates and experts change the terms as their arrays change. Without dropout the masks are not there, and the
probabilities are kept once. Fused attention (as in FlashAttention) replaces scores, softmax and context by one operator
that keeps queries, keys, values and four bytes per row of scores; its backward pass computes the scores again (five
products instead of four). A token goes to `top_k` experts, and these are evenly loaded: each gets
``top_k s b / experts`` tokens.

.. [1] V. Korthikanti et al., "Reducing activation recomputation in large transformer models", MLSys 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

from balance.problems.instances.shapes import TransformerShape
from balance.problems.instances.work import Pass, Work, linear, pointwise, product, residual

NORM_FLOPS = 5.0
"""FLOP per number of a norm; like the other constants here it hardly matters, since memory is the bottleneck."""
SOFTMAX_FLOPS = 5.0
ACTIVATION_FLOPS = 8.0

ENTRY = -1
"""Stands for the block's input among the producers of its tensors."""


@dataclass(frozen=True)
class Net:
    """A tensor inside a layer.

    Parameters
    ----------
    producer
        Position in the layer, or `ENTRY`.
    consumers
        Positions in the layer.
    numbers
        How many numbers it holds.
    """

    producer: int
    consumers: tuple[int, ...]
    numbers: float


@dataclass(frozen=True)
class Pieces:
    """How a model of a shape is run: what decides the work of its operators.

    Parameters
    ----------
    shape
        The model.
    sequence, microbatch
        Tokens per sample and samples per micro-batch.
    element
        Bytes per number.
    degree
        Devices that share each operator.
    dropout
        Whether there is dropout after attention, projections and embedding, and on probabilities.
    fused
        Whether attention is one operator that does not write its scores to memory.
    """

    shape: TransformerShape
    sequence: int
    microbatch: int
    element: int
    degree: int = 1
    dropout: bool = True
    fused: bool = False

    @property
    def tokens(self) -> float:
        """Tokens per micro-batch, s b."""
        return float(self.sequence) * self.microbatch

    @property
    def stream(self) -> float:
        """Numbers in the stream between blocks, s b h."""
        return self.tokens * self.shape.hidden

    @property
    def query_width(self) -> int:
        """Width of one device's queries."""
        return self.shape.hidden // self.degree

    @property
    def key_width(self) -> int:
        """Width of one device's keys (and of its values); partners share a head when there are too few."""
        return max(1, self.shape.groups // self.degree) * self.shape.head_width

    @property
    def inner_width(self) -> int:
        """Width of one device's part of the feed-forward matrices, rounded up."""
        return -(-self.shape.ffn_hidden // self.degree)

    @property
    def vocabulary(self) -> int:
        """Part of the vocabulary that is on one device, rounded up."""
        return -(-self.shape.vocabulary // self.degree)

    # -- operators ---------------------------------------------------------------------------------------------

    def embedding(self) -> list[Work]:
        """Return the operators before the blocks: one look-up, with learned positions added."""
        e, n = self.element, self.stream
        learned = bool(self.shape.positions)
        return [
            Work(
                "embedding",
                forward=Pass(n if learned else 0.0, e * n * (3 if learned else 2), 1),
                # Tokens have no gradient; each row of the stream's gradient is added to a row of the matrix.
                weight_gradient=Pass(n, 3.0 * e * n, 1),
                parameters=(self.vocabulary + self.shape.positions) * self.shape.hidden,
                kept_bytes=self._mask(n),
                workspace_bytes=e * n,
                reduced_forward=self._reduced(n),
            )
        ]

    def head(self, *, training: bool) -> list[Work]:
        """Return the operators after the blocks: norm, logits and, in training, the loss."""
        e, n, logits = self.element, self.stream, self.tokens * self.vocabulary
        rows = [
            self._norm("final_norm"),
            linear(
                "logits",
                self.tokens,
                self.shape.hidden,
                self.vocabulary,
                element=e,
                reduced_backward=self._reduced(n),
            ),
        ]
        if training:
            loss = pointwise("loss", logits, 0.0, flops=SOFTMAX_FLOPS * logits, element=4, kept_bytes=4.0 * logits)
            rows.append(loss)
        return rows

    def block(self) -> tuple[list[Work], list[Net], int]:
        """Return the operators of one block in topological order, its tensors, and where the second half begins.

        The tensor that leaves the block is the next block's `ENTRY`. Tensors have the sizes of one device alone.
        """
        rows, nets = self._attention()
        second = len(rows)
        self._feed_forward(rows, nets)
        return rows, nets, second

    def _attention(self) -> tuple[list[Work], list[Net]]:
        e, n, h = self.element, self.stream, self.shape.hidden
        query, key = self.tokens * self.query_width, self.tokens * self.key_width
        inputs = linear(
            "qkv",
            self.tokens,
            h,
            self.query_width + 2 * self.key_width,
            element=e,
            bias=self.shape.biases,
            reduced_backward=self._reduced(n),
        )
        core, inner = self._fused(query, key) if self.fused else self._scores(query, key)
        projection = linear(
            "projection",
            self.tokens,
            self.query_width,
            h,
            element=e,
            bias=self.shape.biases,
            kept_bytes=e * query + self._mask(n),
            reduced_forward=self._reduced(n),
        )
        rows = [self._norm("norm1"), inputs, *core, projection, self._residual("add1")]
        last = len(rows) - 1
        nets = [
            Net(ENTRY, (0, last), n),
            Net(0, (1,), n),
            *inner,
            Net(last - 2, (last - 1,), query),
            Net(last - 1, (last,), n),
        ]
        return rows, nets

    def _scores(self, query: float, key: float) -> tuple[list[Work], list[Net]]:
        e, s, d = self.element, self.sequence, self.shape.head_width
        batch = self.microbatch * self.query_width / d  # this device's heads, over all samples
        square = batch * s * s
        kept = (2 * e + 1) * square if self.dropout else e * square
        rows = [
            product("scores", batch, s, d, s, left=query, right=key, element=e, kept_bytes=e * (query + key)),
            pointwise("softmax", square, square, flops=SOFTMAX_FLOPS * square, element=e, kept_bytes=kept),
            product("context", batch, s, s, d, left=square, right=key, element=e, kept_bytes=e * key),
        ]
        nets = [Net(1, (2,), query + key), Net(1, (4,), key), Net(2, (3,), square), Net(3, (4,), square)]
        return rows, nets

    def _fused(self, query: float, key: float) -> tuple[list[Work], list[Net]]:
        e, s, d = self.element, self.sequence, self.shape.head_width
        heads = self.microbatch * self.query_width / d
        square = heads * s * s
        one = 2.0 * square * d  # FLOP of one product
        moved = e * 2.0 * (query + key)
        attention = Work(
            "attention",
            forward=Pass(2 * one + SOFTMAX_FLOPS * square, moved, 1),
            input_gradient=Pass(5 * one + 2 * SOFTMAX_FLOPS * square, 2 * moved, 1),
            kept_bytes=e * (query + 2 * key) + 4.0 * heads * s,
            workspace_bytes=moved,
        )
        return [attention], [Net(1, (2,), query + 2 * key)]

    def _feed_forward(self, rows: list[Work], nets: list[Net]) -> None:
        n, entry, first = self.stream, len(rows) - 1, len(rows)
        rows.append(self._norm("norm2"))
        if self.shape.experts:
            self._experts(rows, nets)
        else:
            rows += self._expert("", self.tokens, self._reduced(n), self._mask(n))
            inner = self.tokens * self.inner_width
            at = first + 1
            nets += [
                Net(first, (at,), n),
                Net(at, (at + 1,), inner * (2 if self.shape.gated else 1)),
                Net(at + 1, (at + 2,), inner),
            ]
        last = len(rows)
        rows.append(self._residual("add2"))
        nets.append(Net(entry, (first, last), n))
        nets.append(Net(last - 1, (last,), n))

    def _expert(self, prefix: str, rows: float, reduced: float, mask: float) -> list[Work]:
        """Return the two linear layers of a feed-forward part with its activation function between them."""
        e, h, f = self.element, self.shape.hidden, self.inner_width
        arrays = 2 if self.shape.gated else 1
        inner = rows * f
        return [
            linear(f"{prefix}up", rows, h, arrays * f, element=e, bias=self.shape.biases, reduced_backward=reduced),
            pointwise(
                f"{prefix}activation",
                arrays * inner,
                inner,
                flops=ACTIVATION_FLOPS * inner,
                element=e,
                kept_bytes=e * arrays * inner,
            ),
            linear(
                f"{prefix}down",
                rows,
                f,
                h,
                element=e,
                bias=self.shape.biases,
                kept_bytes=e * inner + mask,
                reduced_forward=reduced,
            ),
        ]

    def _experts(self, rows: list[Work], nets: list[Net]) -> None:
        """Append router, dispatch, experts and combination; partners add up once, after the combination."""
        e, n, experts = self.element, self.stream, self.shape.experts
        norm = len(rows) - 1
        router, dispatch = norm + 1, norm + 2
        spread = self.shape.top_k * n  # what all experts get together
        logits = self.tokens * experts
        gates = self.tokens * self.shape.top_k
        rows.append(linear("router", self.tokens, self.shape.hidden, experts, element=e, kept_bytes=e * (n + logits)))
        moving = Pass(0.0, 2.0 * e * spread, 1)
        rows.append(
            Work("dispatch", moving, moving, workspace_bytes=e * (n + spread), reduced_backward=self._reduced(n))
        )
        combine = dispatch + 1 + 3 * experts
        nets += [Net(norm, (router, dispatch), n), Net(router, (dispatch, combine), gates)]
        share = self.tokens * self.shape.top_k / experts
        inner = share * self.inner_width
        for i in range(experts):
            at = len(rows)
            rows += self._expert(f"expert{i}.", share, 0.0, 0.0)
            nets += [
                Net(dispatch, (at,), spread / experts),
                Net(at, (at + 1,), inner * (2 if self.shape.gated else 1)),
                Net(at + 1, (at + 2,), inner),
                Net(at + 2, (combine,), spread / experts),
            ]
        rows.append(
            Work(
                "combine",
                forward=Pass(2.0 * spread, e * (spread + n), 1),
                input_gradient=Pass(4.0 * spread, e * (2.0 * spread + n), 1),
                kept_bytes=e * spread + self._mask(n),
                workspace_bytes=e * (spread + n),
                reduced_forward=self._reduced(n),
            )
        )

    # -- what many of them share -------------------------------------------------------------------------------

    def _norm(self, name: str) -> Work:
        e, n = self.element, self.stream
        parameters = self.shape.hidden * (2 if self.shape.biases else 1)
        return pointwise(name, n, n, flops=NORM_FLOPS * n, element=e, kept_bytes=e * n, parameters=parameters)

    def _residual(self, name: str) -> Work:
        return residual(name, self.stream, element=self.element, flops=self.stream * (2 if self.dropout else 1))

    def _mask(self, numbers: float) -> float:
        return numbers if self.dropout else 0.0

    def _reduced(self, numbers: float) -> float:
        return self.element * numbers if self.degree > 1 else 0.0
