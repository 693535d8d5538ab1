"""Instances room: the work of the usual operators, FLOP and bytes moved, before any device is known.

A multiply-add is two FLOP. Every operator reads its operands from memory once and writes its result once. The backward
pass has two parts: the *input* part makes the gradients of what the operator read from others, the *weight* part those
of its parameters.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pass:
    """One pass of an operator.

    Parameters
    ----------
    flops
        FLOP.
    bytes
        Bytes read from and written to memory.
    launches
        Kernels started.
    """

    flops: float = 0.0
    bytes: float = 0.0
    launches: int = 0


NOTHING = Pass()


@dataclass(frozen=True)
class Work:
    """The work of one operator on one micro-batch, and what it holds.

    Parameters
    ----------
    name
        Its name within its layer.
    forward, input_gradient, weight_gradient
        The forward pass and the two parts of the backward pass.
    parameters
        Number of parameters.
    kept_bytes
        Kept from the forward to the backward pass.
    workspace_bytes
        Inputs and outputs (in the backward pass: their gradients), held while it runs.
    reduced_forward, reduced_backward
        Bytes that tensor-parallel partners add up over all of them, in each pass.
    """

    name: str
    forward: Pass
    input_gradient: Pass = NOTHING
    weight_gradient: Pass = NOTHING
    parameters: float = 0.0
    kept_bytes: float = 0.0
    workspace_bytes: float = 0.0
    reduced_forward: float = 0.0
    reduced_backward: float = 0.0


def linear(
    name: str,
    rows: float,
    inner: float,
    columns: float,
    *,
    element: int,
    bias: bool = False,
    kept_bytes: float | None = None,
    reduced_forward: float = 0.0,
    reduced_backward: float = 0.0,
) -> Work:
    """Return the work of a (rows, inner) input times an (inner, columns) matrix of parameters.

    Each of the forward pass, the input and the weight part is one product of the same size: ``2 rows inner columns``
    FLOP and ``element (rows inner + inner columns + rows columns)`` bytes. So the backward pass has twice the FLOP of
    the forward pass. Adding the bias is free (it is part of the same kernel).

    Parameters
    ----------
    name
        Name of the operator.
    rows, inner, columns
        Sizes of the product.
    element
        Bytes per number.
    bias
        Whether there are `columns` parameters more.
    kept_bytes
        What the backward pass needs; None: the input.
    reduced_forward, reduced_backward
        As in `Work`.
    """
    moved = element * (rows * inner + inner * columns + rows * columns)
    one = Pass(2.0 * rows * inner * columns, moved, 1)
    return Work(
        name,
        forward=one,
        input_gradient=one,
        weight_gradient=one,
        parameters=inner * columns + (columns if bias else 0),
        kept_bytes=element * rows * inner if kept_bytes is None else kept_bytes,
        workspace_bytes=element * (rows * inner + rows * columns),
        reduced_forward=reduced_forward,
        reduced_backward=reduced_backward,
    )


def product(
    name: str, batch: float, rows: float, inner: float, columns: float, *, left: float, right: float, element: int,
    kept_bytes: float,
) -> Work:  # fmt: skip
    """Return the work of a batch of products of two activations, such as queries and keys.

    Both operands need a gradient: the input part is two products of the same size, there is no weight part.

    Parameters
    ----------
    name
        Name of the operator.
    batch, rows, inner, columns
        Sizes of the products.
    left, right
        Numbers stored of the operands (shared heads are read once).
    element
        Bytes per number.
    kept_bytes
        What the backward pass needs.
    """
    result = batch * rows * columns
    flops, moved = 2.0 * batch * rows * inner * columns, element * (left + right + result)
    return Work(
        name,
        forward=Pass(flops, moved, 1),
        input_gradient=Pass(2 * flops, 2 * moved, 2),
        kept_bytes=kept_bytes,
        workspace_bytes=moved,
    )


def pointwise(
    name: str,
    reads: float,
    writes: float,
    *,
    flops: float,
    element: int,
    kept_bytes: float,
    parameters: float = 0.0,
) -> Work:
    """Return the work of an operator that is bound by memory: a norm, a softmax, an activation function, a pooling.

    Forward it moves ``element (reads + writes)`` bytes. The input part reads the gradient of the output and the saved
    input and writes the gradient of the input, ``element (2 reads + writes)`` bytes, at twice the FLOP. The gradients
    of its few parameters come out of the same kernel, so that the weight part is empty.

    Parameters
    ----------
    name
        Name of the operator.
    reads, writes
        Numbers read and written.
    flops
        FLOP of the forward pass.
    element
        Bytes per number.
    kept_bytes
        What the backward pass needs.
    parameters
        Number of parameters.
    """
    return Work(
        name,
        forward=Pass(flops, element * (reads + writes), 1),
        input_gradient=Pass(2 * flops, element * (2 * reads + writes), 1),
        parameters=parameters,
        kept_bytes=kept_bytes,
        workspace_bytes=element * (reads + writes),
    )


def residual(name: str, numbers: float, *, element: int, flops: float | None = None) -> Work:
    """Return the work of adding a branch to what passed it by.

    Each pass reads two arrays and writes one: backward, the gradients of both ways meet in one sum.

    Parameters
    ----------
    name
        Name of the operator.
    numbers
        Size of each array.
    element
        Bytes per number.
    flops
        FLOP of each pass; None: one per number.
    """
    one = Pass(numbers if flops is None else flops, 3.0 * element * numbers, 1)
    return Work(name, forward=one, input_gradient=one, workspace_bytes=3.0 * element * numbers)
