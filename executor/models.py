"""Executor room: small seeded models as chains of modules, for the demo, the tests and for trying things out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

from balance.problems.model.errors import OptionError


class Embedding(nn.Module):
    """Token and position embedding.

    Parameters
    ----------
    vocabulary, context, width
        Number of tokens, longest sequence, size of a hidden vector.
    """

    def __init__(self, vocabulary: int, context: int, width: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.zeros(context, width))
        nn.init.normal_(self.token.weight, std=0.02)
        nn.init.normal_(self.position, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return hidden vectors, (batch, sequence, width), of token numbers, (batch, sequence)."""
        hidden: torch.Tensor = self.token(tokens) + self.position[: tokens.shape[1]]
        return hidden


class Block(nn.Module):
    """Transformer block: causal self-attention and a feed-forward layer, each behind a layer norm.

    Parameters
    ----------
    width, heads
        Size of a hidden vector and number of attention heads, which divides it.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.mix = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_feed = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return hidden vectors of the same shape, (batch, sequence, width)."""
        batch, length, width = hidden.shape
        mixed = self.mix(self.norm_attention(hidden)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = mixed.permute(2, 0, 3, 1, 4).unbind(0)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        result: torch.Tensor = hidden + self.down(functional.gelu(self.up(self.norm_feed(hidden))))
        return result


class Head(nn.Module):
    """Layer norm and projection to the vocabulary.

    Parameters
    ----------
    width, vocabulary
        Size of a hidden vector and number of tokens.
    """

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, vocabulary, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return logits, (batch, sequence, vocabulary)."""
        logits: torch.Tensor = self.project(self.norm(hidden))
        return logits


def gpt(
    *,
    vocabulary: int = 8192,
    context: int = 128,
    width: int = 256,
    heads: int = 4,
    blocks: int = 6,
    seed: int = 0,
) -> nn.Sequential:
    """Return a GPT-like chain: embedding, blocks, head.

    Raises
    ------
    OptionError
        If the heads do not divide the width.

    Examples
    --------
    >>> [type(module).__name__ for module in gpt(vocabulary=16, context=4, width=8, heads=2, blocks=1)]
    ['Embedding', 'Block', 'Head']
    """
    if width % heads:
        raise OptionError(f"{heads} heads do not divide the width {width}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        parts = [Embedding(vocabulary, context, width), *(Block(width, heads) for _ in range(blocks))]
        return nn.Sequential(*parts, Head(width, vocabulary))


def token_loss(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return the mean cross entropy of logits, (batch, sequence, vocabulary), for tokens, (batch, sequence)."""
    return functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


def mlp(*, widths: Sequence[int] = (32, 64, 64, 64, 8), seed: int = 0) -> nn.Sequential:
    """Return linear layers with tanh between them: ``2 (len(widths) - 1) - 1`` modules.

    Examples
    --------
    >>> len(mlp(widths=(4, 8, 2)))
    3
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        parts: list[nn.Module] = []
        for i, (inner, outer) in enumerate(pairwise(widths)):
            if i:
                parts.append(nn.Tanh())
            parts.append(nn.Linear(inner, outer))
        return nn.Sequential(*parts)


def cnn(*, channels: Sequence[int] = (3, 16, 32, 32), classes: int = 10, seed: int = 0) -> nn.Sequential:
    """Return convolution blocks that halve the image, then pooling and a classifier.

    Examples
    --------
    >>> import torch
    >>> cnn()(torch.zeros(2, 3, 16, 16)).shape
    torch.Size([2, 10])
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        parts: list[nn.Module] = [
            nn.Sequential(nn.Conv2d(inner, outer, 3, stride=2, padding=1), nn.GELU())
            for inner, outer in pairwise(channels)
        ]
        return nn.Sequential(
            *parts, nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), nn.Linear(channels[-1], classes)
        )
