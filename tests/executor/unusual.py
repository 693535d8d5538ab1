"""Modules that break or surprise on purpose; in a module of their own so that spawned ranks can import them."""

from __future__ import annotations

import os
import time

import torch
from torch import nn


class Dies(nn.Module):
    """Ends its process in the given forward call."""

    def __init__(self, call: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.call, self.calls, self.home = call, 0, os.getpid()

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Die in a rank, pass through in the parent, which tries the model on one micro-batch."""
        self.calls += os.getpid() != self.home
        if self.calls == self.call:
            os._exit(7)
        return value * self.weight


class Hangs(Dies):
    """Sleeps in the given forward call."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Hang in a rank."""
        self.calls += os.getpid() != self.home
        if self.calls == self.call:
            time.sleep(3600)
        return value * self.weight


class Raises(Dies):
    """Raises an error with a cause of its own in the given forward call."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Fail in a rank."""
        self.calls += os.getpid() != self.home
        if self.calls == self.call:
            try:
                int("")
            except ValueError as error:
                raise LookupError("broken on purpose") from error
        return value * self.weight


class Pair(nn.Module):
    """Returns two tensors, which stages do not exchange."""

    def forward(self, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the input twice."""
        return value, value


class Turn(nn.Module):
    """Returns a transposed view, which is not contiguous."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Swap the last two dimensions."""
        return value.transpose(-1, -2)
