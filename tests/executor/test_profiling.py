"""Profiles: bytes are exact, times are sane, the model is left alone."""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn.functional import mse_loss

from balance.executor import measure_links, profile
from balance.executor.links import fit_link
from balance.executor.models import mlp
from balance.executor.profiling import typical_total
from balance.problems.model.errors import GraphError, OptionError
from balance.problems.model.graph import CostGraph


class Slow(torch.nn.Module):
    """Many small products: clearly slower than its neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.eye(64))

    def forward(self, value):
        """Multiply many times."""
        for _ in range(200):
            value = value @ self.weight
        return value


def test_bytes_of_a_small_chain():
    """Parameters, boundary tensors and saved activations are counted by hand."""
    model = mlp(widths=(8, 16, 4))
    graph = profile(
        model,
        torch.zeros(6, 8),
        target=torch.zeros(6, 4),
        loss_fn=mse_loss,
        repeats=2,
        warmup=1,
        processes=None,
    )
    assert graph.names == ("0:Linear", "1:Tanh", "2:Linear")
    assert (graph.kinds, graph.style, graph.n_tensors) == (("cpu",), "layers", 2)
    assert graph.parameter_bytes[0].tolist() == [4 * (8 * 16 + 16), 0, 4 * (16 * 4 + 4)]
    assert graph.tensors.bytes.tolist() == graph.tensors.gradient_bytes.tolist() == [6 * 16 * 4] * 2
    # Linear 0 keeps the batch (not counted); tanh keeps its own result, which linear 2 keeps as well; the loss keeps
    # the output of linear 2.
    assert graph.activation_bytes[0].tolist() == [0, 6 * 16 * 4, 6 * 4 * 4]
    assert graph.configurations[0].microbatch_size == 6
    assert graph.source["output_bytes"] == [6 * 16 * 4, 6 * 16 * 4, 6 * 4 * 4]


def test_times_tell_slow_from_fast():
    """The slow module dominates forward and backward; the spread says what the times were made from."""
    model = [torch.nn.Linear(64, 64), Slow(), torch.nn.Tanh()]
    graph = profile(model, torch.ones(4, 64), repeats=5, warmup=1)
    for times in (graph.forward[0, 0], graph.backward[0, 0]):
        assert times.argmax() == 1
        assert (times > 0).all()
    spread = graph.source["spread_seconds"]["forward"]
    median = np.array(spread["median"])
    assert (np.array(spread["quartile_1"]) <= median).all()
    assert (median <= np.array(spread["quartile_3"])).all()
    np.testing.assert_allclose(graph.forward[0, 0], median * spread["scale"])


def test_typical_total_keeps_what_medians_leave_out():
    """Modules that are each delayed in some other repetition add up to the delayed total; extremes do not count."""
    seconds = np.ones((10, 10)) + 10 * np.eye(10)
    assert np.median(seconds, axis=0).sum() == 10
    assert typical_total(seconds) == 20
    seconds[3, 3] += 1e6
    assert typical_total(seconds) == 20


def test_split_backward_gives_both_parts():
    """Input and weight parts are measured; the first module has no input part, as in torch's runtime."""
    model = mlp(widths=(8, 64, 64, 4))
    graph = profile(model, torch.ones(6, 8), repeats=3, warmup=1, split_backward=True)
    assert graph.backward_input is not None
    assert graph.backward_weight is not None
    assert graph.backward_input[0, 0, 0] == 0.0
    assert (graph.backward_input[0, 0, 1:] > 0).all()
    np.testing.assert_allclose(graph.backward, graph.backward_input + graph.backward_weight)


def test_inference_profile_has_no_backward():
    """Without training there is an inference graph without activations and gradients."""
    graph = profile(mlp(widths=(8, 16, 4)), torch.zeros(6, 8), training=False, repeats=2, warmup=0)
    assert graph.style == "inference"
    assert graph.activation_bytes.sum() == graph.tensors.gradient_bytes.sum() == 0.0


def test_model_is_left_alone():
    """Parameters, gradients, buffers and torch's thread count survive a profile with an optimizer."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    before = copy.deepcopy(model.state_dict())
    threads = torch.get_num_threads()
    graph = profile(model, torch.ones(6, 4), optimizer=partial(torch.optim.SGD, lr=1.0), repeats=2, warmup=1)
    assert len(graph.source["optimizer_seconds"]) == 2
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.get_num_threads() == threads
    assert graph.static_bytes[0].tolist() == [0, 4 * 4 * 2 + 8]


def test_frozen_and_shared_parameters():
    """Frozen parameters are static bytes, tied modules share a colocation label."""
    first, second, third = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    third.weight = first.weight
    second.requires_grad_(False)
    graph = profile([first, second, third], torch.ones(6, 4), repeats=1, warmup=0)
    assert graph.parameter_bytes[0, 1] == 0
    assert graph.static_bytes[0, 1] == 80
    assert graph.colocation[0] == graph.colocation[2] >= 0
    assert graph.colocation[1] == -1


def test_profile_with_all_ranks_active(two_ranks):
    """Profiling in two processes pools their samples and the result survives JSON."""
    graph = profile(mlp(widths=(8, 16, 4)), torch.zeros(6, 8), repeats=3, warmup=1, ranks=two_ranks)
    assert graph.source["profile"]["processes"] == 2
    assert len(graph.source["spread_seconds"]["backward"]["per_process"]) == 2
    again = CostGraph.from_json(graph.to_json())
    assert again.hash == graph.hash


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"repeats": 0}, OptionError, "at least 1"),
        ({"loss_fn": mse_loss}, OptionError, "together"),
        ({"example_batch": torch.zeros(0, 8)}, OptionError, "at least one sample"),
        ({"example_batch": torch.zeros(6, 9)}, GraphError, "0:Linear fails on an input of shape"),
        ({"device": "quantum"}, OptionError, "not supported"),
    ],
)
def test_bad_arguments(options, error, message):
    """Wrong arguments are named."""
    with pytest.raises(error, match=message):
        profile(mlp(widths=(8, 16, 4)), **{"example_batch": torch.zeros(6, 8), **options})


def test_links_are_measured(two_ranks):
    """A loopback link has a latency below a tenth of a second and a positive bandwidth."""
    link = measure_links(sizes=(1 << 10, 1 << 16, 1 << 20), repeats=3, warmup=1, ranks=two_ranks)
    assert 0 <= link.latency < 0.1
    assert link.bandwidth > 1e6


def test_link_fit_ignores_an_outlier():
    """The fit goes through the honest points."""
    sizes = np.array([1e3, 1e4, 1e5, 1e6, 1e7])
    seconds = 1e-4 + sizes / 2e9
    seconds[1] *= 10
    link = fit_link(sizes, seconds)
    assert link.latency == pytest.approx(1e-4, rel=1e-6)
    assert link.bandwidth == pytest.approx(2e9, rel=1e-6)
    assert fit_link(np.array([1.0, 2.0]), np.array([2.0, 1.0])).bandwidth == float("inf")


def test_links_need_two_processes(one_rank):
    """One process has no link."""
    with pytest.raises(OptionError, match="two processes"):
        measure_links(ranks=one_rank)
