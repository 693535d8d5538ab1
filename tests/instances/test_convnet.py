"""Convolutional networks: published sizes, residual connections, and what operators keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx
import numpy as np
import pytest

from balance.problems.instances.convnet import RESNETS, VGGS, resnet, vgg
from balance.problems.model.errors import OptionError
from balance.problems.model.graph import CostGraph

# Parameters of the released weights, and billions of multiply-adds of one 224 x 224 image, as torchvision lists them.
RESNET_SIZES = {
    18: (11_689_512, 1.81),
    34: (21_797_672, 3.66),
    50: (25_557_032, 4.09),
    101: (44_549_160, 7.80),
    152: (60_192_808, 11.51),
}
VGG_SIZES = {11: (132_863_336, 7.61), 13: (133_047_848, 11.31), 16: (138_357_544, 15.47), 19: (143_667_240, 19.63)}


@pytest.mark.parametrize("depth", RESNETS)
def test_resnet_sizes(depth: int) -> None:
    """Parameters are exact; work is within 2 % (norms and additions come on top of the published multiply-adds)."""
    graph = resnet(depth=depth, microbatch=1)
    parameters, work = RESNET_SIZES[depth]
    assert graph.parameter_bytes.sum() == 4 * parameters
    assert graph.source["forward_flops"] / 2e9 == pytest.approx(work, rel=0.02)


@pytest.mark.parametrize("depth", VGGS)
def test_vgg_sizes(depth: int) -> None:
    """Parameters are exact, work is within 1 %, and the graph is a chain."""
    graph = vgg(depth=depth, microbatch=1)
    parameters, work = VGG_SIZES[depth]
    assert graph.parameter_bytes.sum() == 4 * parameters
    assert graph.source["forward_flops"] / 2e9 == pytest.approx(work, rel=0.01)
    assert graph.tensors.producer.tolist() == list(range(graph.n_operators - 1))
    assert graph.tensors.consumers.tolist() == list(range(1, graph.n_operators))


def named(graph: CostGraph) -> networkx.DiGraph[Any]:
    """Return the graph with operators by name."""
    found: networkx.DiGraph[Any] = networkx.relabel_nodes(graph.to_networkx(), dict(enumerate(graph.names or ())))
    return found


def test_residual_connections_are_there() -> None:
    """A block's input is read by its first convolution and by its addition, or by its shortcut where shapes differ."""
    dag = named(resnet(depth=50))
    assert set(dag.successors("pool")) == {"layer1.0.conv1", "layer1.0.shortcut"}
    assert set(dag.predecessors("layer1.0.add")) == {"layer1.0.norm3", "layer1.0.shortcut_norm"}
    assert set(dag.successors("layer1.0.add")) == {"layer1.1.conv1", "layer1.1.add"}
    assert sum(name.endswith("shortcut") for name in dag) == 4
    assert sum(name.endswith("shortcut") for name in named(resnet(depth=18))) == 3
    assert [v for v in dag if not dag.succ[v]] == ["classifier"]
    assert [v for v in dag if not dag.pred[v]] == ["conv1"]


def test_tensors_have_the_sizes_of_their_arrays() -> None:
    """An image of 224 pixels is 112 after the first convolution, 56 after the pooling, 7 at the end."""
    graph = resnet(depth=18, microbatch=2)
    by_name = {graph.label(int(t.producer)): t.bytes for t in graph.tensors}
    assert by_name["'conv1'"] == 4 * 2 * 64 * 112**2
    assert by_name["'pool'"] == 4 * 2 * 64 * 56**2
    assert by_name["'layer4.1.add'"] == 4 * 2 * 512 * 7**2
    assert by_name["'mean'"] == 4 * 2 * 512


def test_what_is_read_twice_is_kept_once() -> None:
    """The shortcut reads what the first convolution keeps already; images have no gradient."""
    graph = resnet(depth=50, microbatch=2)
    kept = graph.activation_bytes[0]
    assert kept[graph.index("layer1.0.shortcut")] == 0
    assert kept[graph.index("layer1.0.conv1")] == 4 * 2 * 64 * 56**2
    assert graph.backward_input is not None
    assert graph.backward_input[0, 0, 0] == 0
    assert (graph.backward_input[0, 0, 1:] > 0).all()


def test_micro_batches_scale() -> None:
    """Twice the images keep twice the bytes and have twice the work, of the same parameters."""
    one, two = (resnet(depth=34, microbatch=b) for b in (4, 8))
    assert np.allclose(two.activation_bytes, 2 * one.activation_bytes)
    assert two.source["forward_flops"] == 2 * one.source["forward_flops"]
    assert np.array_equal(two.parameter_bytes, one.parameter_bytes)
    assert two.configurations[0].microbatch_size == 8.0


def test_inference_has_no_backward_pass() -> None:
    """An inference graph has no backward columns."""
    assert vgg(training=False).style == "inference"
    assert resnet(precision="fp16", kinds=["v100-32gb", "jetson-nano"]).kinds == ("v100-32gb", "jetson-nano")


@pytest.mark.parametrize("make", [resnet, vgg])
def test_whole_floats_are_the_same_numbers(make: Callable[..., CostGraph]) -> None:
    """Arguments read from a file as 50.0 give the graph of 50, under the same name."""
    depth = 50 if make is resnet else 16
    floats = make(depth=float(depth), image=64.0, classes=10.0, microbatch=2.0)
    whole = make(depth=depth, image=64, classes=10, microbatch=2)
    assert (floats.name, floats.hash, floats.source) == (whole.name, whole.hash, whole.source)
    assert isinstance(floats.source["image"], int)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"depth": 51}, "depth must be one of 18, 34, 50, 101, 152, got 51"),
        ({"depth": [50]}, "depth must be a whole number"),
        ({"image": 16}, "image must be between 32"),
        ({"microbatch": 0}, "microbatch must be between 1"),
        ({"classes": None}, "classes must be a whole number"),
        ({"precision": "bf16", "kinds": "v100-32gb"}, "does not calculate in bf16"),
        ({"precision": "fp23"}, "no precision|precision cannot be"),
        ({"training": 1}, "training must be true or false"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    """Each bad argument is an error that says which one and what would do."""
    with pytest.raises(OptionError, match=message):
        resnet(**arguments)
