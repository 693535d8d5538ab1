"""Instances room: shapes of transformer language models, with those of well-known published ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from balance.problems.instances.arguments import flag, whole
from balance.problems.model.errors import OptionError
from balance.problems.model.fields import nearest


@dataclass(frozen=True)
class TransformerShape:
    """The shape of a decoder-only transformer: embedding, equal blocks, head.

    Parameters
    ----------
    layers
        Blocks.
    hidden
        Width of the stream that passes through the blocks.
    heads
        Attention heads; their width is ``hidden / heads``.
    vocabulary
        Tokens.
    ffn_hidden
        Width inside the feed-forward part (of each expert).
    kv_heads
        Heads of keys and values; None: as many as `heads`.
    gated
        Whether the feed-forward part has a gate (three matrices, as in SwiGLU) or not (two).
    experts
        Experts of a mixture; 0: dense.
    top_k
        Experts that each token goes to.
    biases
        Whether linear layers and norms have biases. A norm without is a root-mean-square norm.
    tied
        Whether embedding and head are one matrix.
    positions
        Learned positions; 0: none (rotary positions have no parameters).

    Raises
    ------
    OptionError
        If a number is out of range, or heads do not divide what they must.
    """

    layers: int
    hidden: int
    heads: int
    vocabulary: int
    ffn_hidden: int
    kv_heads: int | None = None
    gated: bool = False
    experts: int = 0
    top_k: int = 2
    biases: bool = True
    tied: bool = False
    positions: int = 0

    def __post_init__(self) -> None:
        put = object.__setattr__
        for name in ("layers", "hidden", "heads", "vocabulary", "ffn_hidden", "top_k"):
            put(self, name, whole(name, getattr(self, name)))
        put(self, "kv_heads", self.heads if self.kv_heads is None else whole("kv_heads", self.kv_heads))
        put(self, "experts", whole("experts", self.experts, least=0))
        put(self, "positions", whole("positions", self.positions, least=0))
        for name in ("gated", "biases", "tied"):
            put(self, name, flag(name, getattr(self, name)))
        if self.hidden % self.heads:
            raise OptionError(f"hidden = {self.hidden} is not divisible by heads = {self.heads}")
        if self.heads % self.groups:
            raise OptionError(f"heads = {self.heads} is not divisible by kv_heads = {self.kv_heads}")
        if self.experts and self.top_k > self.experts:
            raise OptionError(f"each token cannot go to top_k = {self.top_k} of {self.experts} experts")

    @property
    def groups(self) -> int:
        """Heads of keys and values."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def head_width(self) -> int:
        """Width of one head."""
        return self.hidden // self.heads

    @property
    def block_parameters(self) -> int:
        """Parameters of one block."""
        h, f, b = self.hidden, self.ffn_hidden, int(self.biases)
        wide = h + 2 * self.groups * self.head_width
        attention = h * wide + b * wide + h * h + b * h
        inner = f * (2 if self.gated else 1)
        expert = h * inner + b * inner + f * h + b * h
        mixture = self.experts * expert + h * self.experts if self.experts else expert
        return attention + mixture + 2 * h * (1 + b)

    @property
    def n_parameters(self) -> int:
        """Parameters of the model, a matrix that embedding and head share counted once."""
        h = self.hidden
        outer = (1 if self.tied else 2) * self.vocabulary * h + self.positions * h + h * (1 + int(self.biases))
        return outer + self.layers * self.block_parameters


@dataclass(frozen=True)
class PublishedModel:
    """A published language model.

    Parameters
    ----------
    shape
        Its shape.
    sequence
        Tokens per sample where none are asked for.
    dropout
        Whether it was trained with dropout.
    source
        Where the shape stands.
    """

    shape: TransformerShape
    sequence: int
    dropout: bool
    source: str


_GPT2 = TransformerShape(12, 768, 12, 50257, 3072, tied=True, positions=1024)
_LLAMA = TransformerShape(32, 4096, 32, 32000, 11008, gated=True, biases=False)
_GPT2_SOURCE = "Radford et al., Language Models are Unsupervised Multitask Learners, 2019, and its released weights"
_LLAMA_2_SOURCE = "Touvron et al., Llama 2: Open Foundation and Fine-Tuned Chat Models, 2023, and its released weights"
_LLAMA_3_SOURCE = (
    "Grattafiori et al., The Llama 3 Herd of Models, 2024, table 3; the sequence is that of its main pre-training"
)

PUBLISHED_MODELS: Mapping[str, PublishedModel] = MappingProxyType(
    {
        "gpt2-small": PublishedModel(_GPT2, 1024, True, _GPT2_SOURCE),
        "gpt2-medium": PublishedModel(
            replace(_GPT2, layers=24, hidden=1024, heads=16, kv_heads=16, ffn_hidden=4096), 1024, True, _GPT2_SOURCE
        ),
        "gpt2-xl": PublishedModel(
            replace(_GPT2, layers=48, hidden=1600, heads=25, kv_heads=25, ffn_hidden=6400), 1024, True, _GPT2_SOURCE
        ),
        "llama-2-7b": PublishedModel(_LLAMA, 4096, False, _LLAMA_2_SOURCE),
        "llama-2-70b": PublishedModel(
            replace(_LLAMA, layers=80, hidden=8192, heads=64, kv_heads=8, ffn_hidden=28672),
            4096,
            False,
            _LLAMA_2_SOURCE,
        ),
        "llama-3.1-8b": PublishedModel(
            replace(_LLAMA, kv_heads=8, ffn_hidden=14336, vocabulary=128256), 8192, False, _LLAMA_3_SOURCE
        ),
        "llama-3.1-70b": PublishedModel(
            replace(_LLAMA, layers=80, hidden=8192, heads=64, kv_heads=8, ffn_hidden=28672, vocabulary=128256),
            8192,
            False,
            _LLAMA_3_SOURCE,
        ),
        "llama-3.1-405b": PublishedModel(
            replace(_LLAMA, layers=126, hidden=16384, heads=128, kv_heads=8, ffn_hidden=53248, vocabulary=128256),
            8192,
            False,
            _LLAMA_3_SOURCE,
        ),
        "mixtral-8x7b": PublishedModel(
            replace(_LLAMA, kv_heads=8, ffn_hidden=14336, experts=8, top_k=2),
            4096,
            False,
            "Jiang et al., Mixtral of Experts, 2024; its context is 32,768 tokens, the sequence here is shorter",
        ),
    }
)
"""Published models by name."""


def published_model(name: str) -> PublishedModel:
    """Return a published model by its name.

    Raises
    ------
    OptionError
        If there is none; the message names the nearest.

    Examples
    --------
    >>> published_model("gpt2-small").shape.n_parameters
    124439808
    """
    if not isinstance(name, str) or name not in PUBLISHED_MODELS:
        raise OptionError(f"there is no published model {name!r}{nearest(str(name), PUBLISHED_MODELS)}")
    return PUBLISHED_MODELS[name]
