"""Executor room: how many bytes autograd keeps from forward to backward, and who made them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from balance.executor.modules import Loss, checked_output, module_names


class SavedBytes:
    """Context manager that collects the distinct storages which autograd saves inside it.

    Parameters
    ----------
    ignored
        Tensors whose storages are held anyway: parameters, buffers, the batch.

    Notes
    -----
    The hook returns a detached alias: returning the tensor itself would tie saved outputs into reference cycles.
    """

    def __init__(self, ignored: Sequence[torch.Tensor]) -> None:
        self._ignored = {tensor.untyped_storage().data_ptr() for tensor in ignored}
        self.storages: dict[int, torch.UntypedStorage] = {}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack)

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._ignored:
            self.storages.setdefault(storage.data_ptr(), storage)
        return tensor.detach()

    @property
    def bytes(self) -> int:
        """Bytes of the storages collected so far."""
        return sum(storage.nbytes() for storage in self.storages.values())

    def __enter__(self) -> SavedBytes:
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.__exit__(*error)


def _unpack(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def held_tensors(module: torch.nn.Module) -> list[torch.Tensor]:
    """Return parameters and buffers of a module."""
    return [*module.parameters(), *module.buffers()]


def activation_bytes(
    modules: Sequence[torch.nn.Module], batch: torch.Tensor, target: torch.Tensor | None, loss_fn: Loss | None
) -> list[int]:
    """Return the bytes that each module keeps from forward to backward for one micro-batch, shape (n,).

    A storage counts once, for the module that made it: an input that a module saves belongs to its producer (on the
    same stage it is the producer's output; on the next one it is the receive buffer, which the backend's buffer rule
    counts). The last module's output counts even if nothing saves it: the runtime holds what a stage puts out until
    its backward pass. Parameters, buffers, the batch and the target do not count.
    """
    ignored = [tensor for module in modules for tensor in held_tensors(module)]
    ignored += [batch, *([target] if target is not None else [])]
    kept = [0] * len(modules)
    made_by: dict[int, int] = {}
    counted: dict[int, torch.UntypedStorage] = {}  # keeps the storages alive, so that no address is used twice
    names = module_names(modules)
    value, alive = batch, []
    for i, module in enumerate(modules):
        with SavedBytes(ignored) as saved:
            output = checked_output(module(value), names[i])
            if i == len(modules) - 1 and loss_fn is not None and target is not None:
                alive.append(loss_fn(output, target))
        alive.append(output)
        for address, storage in saved.storages.items():
            if address not in counted:
                counted[address] = storage
                kept[made_by.get(address, i)] += storage.nbytes()
        made_by.setdefault(output.untyped_storage().data_ptr(), i)
        value = output.detach().requires_grad_(output.requires_grad)
    last = value.untyped_storage()
    if last.data_ptr() not in counted and last.data_ptr() not in {t.untyped_storage().data_ptr() for t in ignored}:
        kept[-1] += last.nbytes()
    return kept
