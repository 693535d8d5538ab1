"""Instances room: cost graphs of convolutional networks, ResNet and VGG, with residual connections as they are.

A convolution is costed as the matrix product that it is equal to: ``batch * height * width`` of its output times
``channels_in * kernel^2`` times ``channels_out``, but its input is read once and not once per position of the kernel.
What is kept from forward to backward is charged to the operator that needs it: a convolution and a norm keep their
input, a pooling the positions of its maxima (8 bytes each); a rectifier works in place, and its output is kept by
whoever reads it. Where two operators need one array (the first convolution of a block and that of its shortcut) the
first is charged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from balance.problems.instances.arguments import choice, flag, settings, whole
from balance.problems.instances.catalogue import ELEMENT_BYTES, DeviceKind, device_kinds, element_bytes
from balance.problems.instances.roofline import Roofline, cost_tables
from balance.problems.instances.work import Pass, Work, linear, pointwise, residual
from balance.problems.model.errors import OptionError
from balance.problems.model.graph import Configuration, CostGraph
from balance.problems.model.tensors import Tensors

RESNETS: Mapping[int, tuple[tuple[int, ...], bool]] = {
    18: ((2, 2, 2, 2), False),
    34: ((3, 4, 6, 3), False),
    50: ((3, 4, 6, 3), True),
    101: ((3, 4, 23, 3), True),
    152: ((3, 8, 36, 3), True),
}
"""Blocks per stage, and whether these are bottlenecks, by depth (He et al., Deep Residual Learning, 2015, table 1)."""

VGGS: Mapping[int, tuple[int, ...]] = {
    11: (1, 1, 2, 2, 2),
    13: (2, 2, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}
"""Convolutions per stage by depth (Simonyan and Zisserman, Very Deep Convolutional Networks, 2014, table 1)."""

_NORM_FLOPS = 5.0


class _Network:
    """A network while it is built: operators in topological order, who reads whom, and the shape of each output."""

    def __init__(self, batch: int, element: int) -> None:
        self.batch = batch
        self.element = element
        self.rows: list[Work] = []
        self.readers: list[list[int]] = []
        self.shapes: list[tuple[int, int]] = []  # channels, height (= width)

    def numbers(self, at: int) -> float:
        """Return the size of an operator's output."""
        channels, height = self.shapes[at]
        return float(self.batch) * channels * height * height

    def add(self, work: Work, inputs: Sequence[int], shape: tuple[int, int]) -> int:
        """Append an operator and return its position."""
        at = len(self.rows)
        self.rows.append(work)
        self.readers.append([])
        self.shapes.append(shape)
        for i in inputs:
            self.readers[i].append(at)
        return at

    def convolution(
        self,
        name: str,
        at: int | None,
        source: tuple[int, int],
        channels: int,
        *,
        kernel: int,
        stride: int = 1,
        bias: bool = False,
        keeps: bool = True,
    ) -> int:
        """Append a convolution with ``kernel // 2`` cells of padding; `at` is None at the first operator."""
        before, height = source
        after = (height + 2 * (kernel // 2) - kernel) // stride + 1
        read = float(self.batch) * before * height * height
        written = float(self.batch) * channels * after * after
        weights = float(kernel * kernel * before * channels)
        one = Pass(2.0 * self.batch * after * after * weights, self.element * (read + weights + written), 1)
        work = Work(
            name,
            forward=one,
            # Images have no gradient, so the first convolution has a weight part only.
            input_gradient=one if at is not None else Pass(),
            weight_gradient=one,
            parameters=weights + (channels if bias else 0),
            kept_bytes=self.element * read if keeps else 0.0,
            workspace_bytes=self.element * (read + written),
        )
        return self.add(work, [] if at is None else [at], (channels, after))

    def norm(self, name: str, at: int, *, rectified: bool) -> int:
        """Append a batch norm, with the rectifier that follows it in place."""
        n, channels = self.numbers(at), self.shapes[at][0]
        flops = (_NORM_FLOPS + (1 if rectified else 0)) * n
        work = pointwise(
            name, n, n, flops=flops, element=self.element, kept_bytes=self.element * n, parameters=2 * channels
        )
        return self.add(work, [at], self.shapes[at])

    def rectifier(self, name: str, at: int) -> int:
        """Append a rectifier on its own."""
        n = self.numbers(at)
        return self.add(pointwise(name, n, n, flops=n, element=self.element, kept_bytes=0.0), [at], self.shapes[at])

    def pooling(self, name: str, at: int, *, kernel: int, stride: int, padding: int = 0, largest: bool = True) -> int:
        """Append a pooling of the largest or the mean."""
        channels, height = self.shapes[at]
        after = (height + 2 * padding - kernel) // stride + 1
        n, written = self.numbers(at), float(self.batch) * channels * after * after
        work = pointwise(
            name,
            n,
            written,
            flops=written * kernel * kernel,
            element=self.element,
            kept_bytes=8.0 * written if largest else 0.0,
        )
        return self.add(work, [at], (channels, after))

    def addition(self, name: str, left: int, right: int) -> int:
        """Append the sum of a branch and its shortcut, rectified."""
        n = self.numbers(left)
        return self.add(residual(name, n, element=self.element, flops=2 * n), sorted((left, right)), self.shapes[left])

    def dense(self, name: str, at: int, columns: int) -> int:
        """Append a linear layer that reads everything before it."""
        channels, height = self.shapes[at]
        inner = channels * height * height
        return self.add(linear(name, self.batch, inner, columns, element=self.element, bias=True), [at], (columns, 1))

    def graph(
        self,
        name: str,
        precision: str,
        kinds: str | DeviceKind | Sequence[str | DeviceKind],
        training: bool,
        roofline: Roofline | Mapping[str, Any] | None,
        image: int,
    ) -> CostGraph:
        """Return the finished network as a cost graph."""
        chosen, law = device_kinds(kinds), settings("roofline", Roofline, roofline)
        columns = [Configuration(microbatch_size=self.batch)]
        tables = cost_tables([self.rows], columns, chosen, precision, law)
        producer = [i for i, readers in enumerate(self.readers) if readers]
        counts = [len(self.readers[i]) for i in producer]
        tensors = Tensors(
            producer,
            np.concatenate([[0], np.cumsum(counts)]),
            [reader for i in producer for reader in self.readers[i]],
            self.element * np.array([self.numbers(i) for i in producer]),
        )
        return CostGraph(
            **tables.columns(training=flag("training", training)),
            kinds=[kind.name for kind in chosen],
            configurations=columns,
            names=[row.name for row in self.rows],
            tensors=tensors,
            name=name,
            source={
                "generator": name,
                "n_parameters": int(sum(row.parameters for row in self.rows)),
                "forward_flops": float(tables.flops[0].sum()),
                "image": image,
                "precision": precision,
                "roofline": law.to_json(),
                "device_kinds": {kind.name: kind.source for kind in chosen},
            },
        )


def resnet(
    *,
    depth: int = 50,
    image: int = 224,
    classes: int = 1000,
    microbatch: int = 32,
    precision: str = "fp32",
    kinds: str | DeviceKind | Sequence[str | DeviceKind] = ("a100-80gb",),
    training: bool = True,
    roofline: Roofline | Mapping[str, Any] | None = None,
) -> CostGraph:
    """Return the cost graph of a residual network, one operator per convolution, norm, addition and pooling.

    Parameters
    ----------
    depth
        18, 34, 50, 101 or 152; from 50 on the blocks are bottlenecks that shrink in their 3 x 3 convolution.
    image
        Height and width of the images in pixels, at least 32.
    classes
        Outputs.
    microbatch
        Images per micro-batch.
    precision, kinds, roofline
        As in `balance.problems.instances.transformer.transformer`.
    training
        A layer graph with a backward pass, or an inference graph.

    Raises
    ------
    OptionError
        If an argument is out of range.

    Examples
    --------
    >>> graph = resnet(depth=50)
    >>> graph.n_operators, graph.source["n_parameters"]
    (125, 25557032)
    """
    depth, image = _depth(depth, RESNETS), _image(image)
    stages, bottleneck = RESNETS[depth]
    net = _start(microbatch, precision)
    at = net.convolution("conv1", None, (3, image), 64, kernel=7, stride=2)
    at = net.norm("norm1", at, rectified=True)
    at = net.pooling("pool", at, kernel=3, stride=2, padding=1)
    for stage, blocks in enumerate(stages):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            at = _block(net, f"layer{stage + 1}.{block}", at, 64 * 2**stage, stride, bottleneck)
    at = net.pooling("mean", at, kernel=net.shapes[at][1], stride=1, largest=False)
    net.dense("classifier", at, whole("classes", classes))
    return net.graph(f"resnet{depth}", precision, kinds, training, roofline, image)


def vgg(
    *,
    depth: int = 16,
    image: int = 224,
    classes: int = 1000,
    microbatch: int = 32,
    precision: str = "fp32",
    kinds: str | DeviceKind | Sequence[str | DeviceKind] = ("a100-80gb",),
    training: bool = True,
    roofline: Roofline | Mapping[str, Any] | None = None,
) -> CostGraph:
    """Return the cost graph of a VGG network, a chain whose first half has the work and whose end has the parameters.

    Parameters
    ----------
    depth
        11, 13, 16 or 19.
    image
        Height and width of the images in pixels, at least 32.
    classes, microbatch, precision, kinds, training, roofline
        As in `resnet`.

    Raises
    ------
    OptionError
        If an argument is out of range.

    Examples
    --------
    >>> vgg(depth=16).source["n_parameters"]
    138357544
    """
    depth, image = _depth(depth, VGGS), _image(image)
    stages = VGGS[depth]
    net = _start(microbatch, precision)
    at: int | None = None
    for stage, layers in enumerate(stages):
        for layer in range(layers):
            name = f"stage{stage + 1}.{layer}"
            source = (3, image) if at is None else net.shapes[at]
            at = net.convolution(f"{name}.conv", at, source, 64 * 2 ** min(stage, 3), kernel=3, bias=True)
            at = net.rectifier(f"{name}.relu", at)
        assert at is not None  # every stage has a layer
        at = net.pooling(f"stage{stage + 1}.pool", at, kernel=2, stride=2)
    assert at is not None
    for i in range(2):
        at = net.rectifier(f"relu{i + 1}", net.dense(f"classifier{i + 1}", at, 4096))
    net.dense("classifier3", at, whole("classes", classes))
    return net.graph(f"vgg{depth}", precision, kinds, training, roofline, image)


def _depth(depth: int, known: Mapping[int, Any]) -> int:
    if whole("depth", depth) not in known:
        raise OptionError(f"depth must be one of {', '.join(map(str, known))}, got {depth!r}", option="depth")
    return int(depth)


def _image(image: int) -> int:
    return whole("image", image, least=32)


def _start(microbatch: int, precision: str) -> _Network:
    choice("precision", precision, tuple(ELEMENT_BYTES))
    return _Network(whole("microbatch", microbatch), element_bytes(precision))


def _block(net: _Network, name: str, entry: int, width: int, stride: int, bottleneck: bool) -> int:
    """Append one residual block; where shapes differ its shortcut is a convolution of its own."""
    source = net.shapes[entry]
    # Kernel, stride and channels of each convolution; the 3 x 3 convolution of a bottleneck takes the stride.
    layers = [(3, stride, width), (3, 1, width)]
    if bottleneck:
        layers = [(1, 1, width), (3, stride, width), (1, 1, 4 * width)]
    at = entry
    for i, (kernel, step, channels) in enumerate(layers, 1):
        at = net.convolution(f"{name}.conv{i}", at, net.shapes[at], channels, kernel=kernel, stride=step)
        at = net.norm(f"{name}.norm{i}", at, rectified=i < len(layers))
    shortcut = entry
    if source != net.shapes[at]:
        channels = net.shapes[at][0]
        shortcut = net.convolution(f"{name}.shortcut", entry, source, channels, kernel=1, stride=stride, keeps=False)
        shortcut = net.norm(f"{name}.shortcut_norm", shortcut, rectified=False)
    return net.addition(f"{name}.add", at, shortcut)
