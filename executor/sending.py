"""Executor room: what travels to a rank by pickle, and finding out before a process is started whether it can."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import torch

from balance.executor.modules import module_names
from balance.problems.model.errors import ExecutionError, OptionError

Job = Callable[..., Any]


class _Sink:
    """A file that forgets what is written to it."""

    def write(self, data: bytes) -> int:
        return len(data)


class _WithoutTensors(pickle.Pickler):
    """Leaves the contents of tensors out: they can always be sent, and copying a model to find out is dear."""

    def reducer_override(self, value: Any) -> Any:
        return (int, ()) if isinstance(value, torch.Tensor | torch.UntypedStorage) else NotImplemented


def check_sendable(modules: Sequence[torch.nn.Module], loss_fn: object, optimizer: object) -> None:
    """Check that modules and functions can be pickled.

    Parameters
    ----------
    modules
        The chain.
    loss_fn, optimizer
        What goes with it, or None.

    Raises
    ------
    ExecutionError
        If one of them cannot; it is named.
    """
    named = [(f"module {name}", module) for name, module in zip(module_names(modules), modules, strict=True)]
    for name, value in [*named, ("loss_fn=", loss_fn), ("optimizer=", optimizer)]:
        try:
            _WithoutTensors(_Sink(), protocol=pickle.HIGHEST_PROTOCOL).dump(value)
        except Exception as error:  # a user's __reduce__ may raise anything; the message says whose
            raise _refusal(name, error) from None


def pack(job: Job, arguments: Sequence[Any]) -> bytes:
    """Return the message that asks a rank to run a job.

    Raises
    ------
    ExecutionError
        If it cannot be pickled.
    """
    try:
        return pickle.dumps((job, tuple(arguments)), protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # a user's __reduce__ may raise anything; the message says what
        raise _refusal("the model, loss function or optimizer", error) from None


def _refusal(name: str, error: Exception) -> ExecutionError:
    return ExecutionError(
        f"{name} cannot be sent to the ranks: {type(error).__name__}: {error}; define it at the top level of an "
        f"importable module (no lambda, no local class) and keep open files, locks and hooks out of it"
    )


def compact(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as it is sent: on CPU, without history, and without the rest of a storage that it is a part of.

    Raises
    ------
    OptionError
        If it holds no data or cannot be laid out in memory.
    """
    if tensor.device.type == "meta" or tensor.layout is not torch.strided:
        raise OptionError(
            f"a batch is a dense tensor with data, got one on device {tensor.device} with layout {tensor.layout}"
        )
    plain = tensor.detach().to("cpu")
    if plain.untyped_storage().nbytes() > plain.numel() * plain.element_size():
        plain = plain.clone()
    return plain.requires_grad_(tensor.requires_grad and tensor.is_leaf)
