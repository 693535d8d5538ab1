"""Executor room: a model as a chain of modules, and what can be said about it without running it on devices."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from balance.problems.model.errors import GraphError

Model = torch.nn.Sequential | Sequence[torch.nn.Module]


@dataclass(frozen=True)
class TensorShape:
    """Shape, type and gradient flag of a boundary tensor of one micro-batch.

    Parameters
    ----------
    shape
        Its sizes, the micro-batch first.
    dtype
        Element type.
    requires_grad
        Whether a gradient comes back for it.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool

    @property
    def bytes(self) -> int:
        """Its size."""
        count = 1
        for side in self.shape:
            count *= side
        return count * self.dtype.itemsize

    def example(self, device: torch.device) -> torch.Tensor:
        """Return an empty tensor of this kind."""
        return torch.empty(self.shape, dtype=self.dtype, device=device, requires_grad=self.requires_grad)


def as_modules(model: Model) -> list[torch.nn.Module]:
    """Return the modules of a sequential chain.

    Parameters
    ----------
    model
        An `nn.Sequential`, an `nn.ModuleList`, or a list of modules, each taking and returning one tensor.

    Raises
    ------
    GraphError
        If it is something else, or empty.
    """
    if isinstance(model, torch.nn.Module) and not isinstance(model, (torch.nn.Sequential, torch.nn.ModuleList)):
        raise GraphError(
            f"the model is a {type(model).__name__}; give a chain of modules: an nn.Sequential or a list in which each "
            f"module takes the previous one's output"
        )
    try:
        modules = list(model)
    except TypeError:
        raise GraphError(f"the model is a {type(model).__name__}, not an nn.Sequential or a list of modules") from None
    if not modules:
        raise GraphError("the model has no modules")
    for i, module in enumerate(modules):
        if not isinstance(module, torch.nn.Module):
            raise GraphError(f"entry {i} of the model is a {type(module).__name__}, not an nn.Module")
    return modules


def module_names(modules: Sequence[torch.nn.Module]) -> list[str]:
    """Return unique names, index and type, such as ``3:Linear``."""
    return [f"{i}:{type(module).__name__}" for i, module in enumerate(modules)]


def shared_parameters(modules: Sequence[torch.nn.Module]) -> list[int]:
    """Return a colocation label per module: modules that share a parameter get the same one, others -1, shape (n,).

    Tied weights on different stages would each receive only their own stage's part of the gradient.
    """
    label = list(range(len(modules)))
    home: dict[int, int] = {}
    for i, module in enumerate(modules):
        for parameter in module.parameters():
            first = home.setdefault(id(parameter), i)
            if label[first] != label[i]:
                old, new = label[i], label[first]
                label = [new if cell == old else cell for cell in label]
    return [cell if label.count(cell) > 1 else -1 for cell in label]


def boundary_shapes(modules: Sequence[torch.nn.Module], microbatch: torch.Tensor, training: bool) -> list[TensorShape]:
    """Run one micro-batch through copies of the modules on CPU and return the n + 1 tensors before, between and after.

    The model, its buffers and torch's random state are left as they were.

    Raises
    ------
    GraphError
        If a module fails on its input or returns something else than one tensor; it names the module.
    """
    names = module_names(modules)
    value = microbatch.detach()
    shapes = [TensorShape(tuple(value.shape), value.dtype, False)]
    with torch.random.fork_rng(devices=[]), torch.set_grad_enabled(training):
        for i, module in enumerate(modules):
            try:
                output = copy.deepcopy(module).to("cpu")(value)
            except Exception as error:  # a user's module may raise anything; the message says where
                hint = "; a stage may begin here, so build it with inplace=False" if "in-place" in str(error) else ""
                raise GraphError(
                    f"module {names[i]} fails on an input of shape {tuple(value.shape)} and type {value.dtype}: "
                    f"{type(error).__name__}: {str(error).rstrip('.')}{hint}",
                    operator=i,
                ) from None
            output = checked_output(output, names[i])
            shapes.append(TensorShape(tuple(output.shape), output.dtype, training and output.requires_grad))
            value = output.detach().requires_grad_(training and output.requires_grad)
    return shapes


def checked_output(output: object, name: str) -> torch.Tensor:
    """Return the output of a module if it is one tensor.

    Raises
    ------
    GraphError
        Otherwise.
    """
    if not isinstance(output, torch.Tensor):
        raise GraphError(
            f"module {name} returns a {type(output).__name__}; stages exchange one tensor, so let it return a tensor"
        )
    return output


def bytes_of(tensors: Sequence[torch.Tensor]) -> int:
    """Return the bytes of distinct tensors."""
    seen = {id(tensor): tensor for tensor in tensors}
    return sum(tensor.numel() * tensor.element_size() for tensor in seen.values())
