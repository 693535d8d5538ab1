"""Executor room: a model as a chain of modules, and what can be said about it without running it on devices."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch

from balance.problems.model.errors import GraphError, OptionError

Model = torch.nn.Sequential | Sequence[torch.nn.Module]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


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

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorShape:
        """Return the kind of a tensor."""
        return cls(tuple(tensor.shape), tensor.dtype, tensor.requires_grad)

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
    """Return the kinds of the n + 1 tensors before, between and after the modules; see `boundaries`."""
    return boundaries(modules, microbatch, training, ())[0]


def boundaries(
    modules: Sequence[torch.nn.Module], microbatch: torch.Tensor, training: bool, keep: Collection[int]
) -> tuple[list[TensorShape], dict[int, torch.Tensor]]:
    """Run one micro-batch through copies of the modules on CPU.

    The model, its buffers, the micro-batch and torch's random state are left as they were.

    Parameters
    ----------
    modules, microbatch
        The chain and its input.
    training
        Whether gradients are to come back.
    keep
        Boundaries whose tensors are wanted.

    Returns
    -------
    shapes
        The n + 1 tensors before, between and after the modules.
    kept
        The wanted tensors by boundary.

    Raises
    ------
    GraphError
        If a module cannot be copied, fails on its input, returns something else than one tensor, or is the first and
        changes the batch in place; it names the module.
    """
    names = module_names(modules)
    value = microbatch.detach().to("cpu", copy=True)
    untouched = value._version
    shapes = [TensorShape.of(value)]
    kept = {0: value} if 0 in keep else {}
    with torch.random.fork_rng(devices=[]), torch.set_grad_enabled(training):
        for i, module in enumerate(modules):
            try:
                one = copy.deepcopy(module).to("cpu")
            except Exception as error:  # a user's module may raise anything; the message says where
                raise GraphError(
                    f"module {names[i]} cannot be copied: {type(error).__name__}: {error}; keep tensors that were "
                    f"computed from parameters out of its attributes",
                    operator=i,
                ) from None
            try:
                output = one(value)
            except Exception as error:  # a user's module may raise anything; the message says where
                hint = "; a stage may begin here, so build it with inplace=False" if "in-place" in str(error) else ""
                raise GraphError(
                    f"module {names[i]} fails on an input of shape {tuple(value.shape)} and type {value.dtype}: "
                    f"{type(error).__name__}: {str(error).rstrip('.')}{hint}",
                    operator=i,
                ) from None
            output = checked_output(output, names[i])
            if i == 0 and value._version != untouched:
                raise GraphError(
                    f"module {names[i]} changes its input in place, and every step uses the batch again; build it with "
                    f"inplace=False",
                    operator=i,
                )
            value = output.detach().requires_grad_(training and output.requires_grad)
            shapes.append(TensorShape.of(value))
            if i + 1 in keep:
                kept[i + 1] = value
    return shapes, kept


def check_loss(loss_fn: Loss, output: TensorShape, target: torch.Tensor, training: bool) -> None:
    """Try a copy of the loss function on zeros of the model's output and one micro-batch of the target, on CPU.

    Raises
    ------
    OptionError
        If it fails, or returns something else than one number; in training, if no gradient comes back from it.
    """
    given = f"an output of shape {output.shape} and a target of shape {tuple(target.shape)}, type {target.dtype}"
    with torch.random.fork_rng(devices=[]), torch.set_grad_enabled(training):
        zeros = torch.zeros(output.shape, dtype=output.dtype, requires_grad=output.requires_grad)
        try:
            loss = copy.deepcopy(loss_fn)(zeros, target.detach().to("cpu", copy=True))
        except Exception as error:  # a user's function may raise anything; the message says on what
            raise OptionError(f"loss_fn= fails on {given}: {type(error).__name__}: {error}") from None
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        what = f"shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else f"type {type(loss).__name__}"
        raise OptionError(f"loss_fn= must return one number, the mean over the micro-batch, not {what}, on {given}")
    if training and output.requires_grad and not loss.requires_grad:
        raise OptionError("loss_fn= returns a number through which no gradient flows; do not detach it")


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


def first_owners(modules: Sequence[torch.nn.Module]) -> list[list[torch.nn.Parameter]]:
    """Return the parameters of each module without those that an earlier module has too.

    Modules that share a parameter always stay on one stage, so that nothing is lost by counting it once.
    """
    seen: set[int] = set()
    owned: list[list[torch.nn.Parameter]] = []
    for module in modules:
        owned.append([parameter for parameter in module.parameters() if id(parameter) not in seen])
        seen.update(id(parameter) for parameter in owned[-1])
    return owned


def bytes_of(tensors: Sequence[torch.Tensor]) -> int:
    """Return the bytes of distinct tensors."""
    seen = {id(tensor): tensor for tensor in tensors}
    return sum(tensor.numel() * tensor.element_size() for tensor in seen.values())
