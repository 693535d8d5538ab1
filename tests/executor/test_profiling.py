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
from balance.problems.model.errors import ExecutionError, GraphError, OptionError
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
    # The tied weight counts once, with the first module that has it; the biases are each module's own.
    assert graph.parameter_bytes[0].tolist() == [80, 0, 16]
    assert graph.sync_bytes[0].tolist() == [80, 0, 16]
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


def test_split_backward_behind_frozen_modules():
    """A module whose input needs no gradient has a weight part only: its whole backward pass."""
    model = mlp(widths=(8, 64, 64, 4))
    model[0].requires_grad_(False)
    graph = profile(model, torch.ones(6, 8), repeats=3, warmup=1, split_backward=True)
    assert graph.backward_input[0, 0, :3].tolist() == [0.0, 0.0, 0.0]
    assert (graph.backward_input[0, 0, 3:] > 0).all()
    assert graph.backward_weight[0, 0, 2] > graph.backward_weight[0, 0, 0]


class Deaf(torch.nn.Module):
    """Does not use its input."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(6, 4))

    def forward(self, value):
        """Return the weight."""
        return self.weight * 1.0


@pytest.mark.parametrize("split_backward", [False, True])
def test_module_that_ignores_its_input(split_backward):
    """No gradient reaches what stands before such a module, which is no error."""
    graph = profile(
        [torch.nn.Linear(4, 4), Deaf(), torch.nn.Linear(4, 4)],
        torch.ones(6, 4),
        repeats=2,
        warmup=0,
        split_backward=split_backward,
    )
    assert graph.backward[0, 0, 2] > 0


def test_the_batch_is_left_alone():
    """A first module that writes into its input is refused, and has not reached the batch."""
    batch = torch.full((4, 4), -1.0)
    with pytest.raises(GraphError, match="0:ReLU changes its input in place"):
        profile([torch.nn.ReLU(inplace=True), torch.nn.Linear(4, 4)], batch, training=False, repeats=1)
    assert (batch == -1).all()


def test_random_state_and_modes_are_left_alone():
    """Dropout draws nothing from the caller's generator, and modules keep their mode."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(4).eval())
    state = torch.random.get_rng_state()
    profile(model, torch.ones(6, 4), repeats=2, warmup=1)
    assert torch.equal(state, torch.random.get_rng_state())
    assert [module.training for module in model] == [True, True, False]
    assert torch.is_grad_enabled()


def test_profile_by_stages(two_ranks):
    """Each process measures its own stage; bytes are those of the whole chain, in flight is what 1F1B holds."""
    model = mlp(widths=(8, 64, 16, 4))
    options = {"target": torch.zeros(6, 4), "loss_fn": mse_loss, "repeats": 3, "warmup": 1, "ranks": two_ranks}
    whole = profile(model, torch.zeros(6, 8), **options)
    parts = profile(model, torch.zeros(6, 8), cuts=[0, 2, 5], **options)
    assert parts.source["profile"]["cuts"] == [0, 2, 5]
    assert parts.source["profile"]["in_flight"] == [2, 1]
    assert [len(row) for row in parts.source["spread_seconds"]["forward"]["per_process"]] == [2, 3]
    assert parts.names == whole.names
    np.testing.assert_array_equal(parts.parameter_bytes, whole.parameter_bytes)
    np.testing.assert_array_equal(parts.activation_bytes, whole.activation_bytes)
    np.testing.assert_array_equal(parts.tensors.bytes, whole.tensors.bytes)
    assert (parts.forward > 0).all()
    assert (parts.backward > 0).all()
    assert 0 < parts.source["profile"]["on_cpu"] <= 1.01
    inference = profile(model, torch.zeros(6, 8), cuts=[0, 2, 5], repeats=2, training=False, ranks=two_ranks)
    assert inference.style == "inference"
    with pytest.raises(OptionError, match="2 stages are profiled in as many processes, got 3"):
        profile(model, torch.zeros(6, 8), cuts=[0, 2, 5], processes=3)


@pytest.mark.parametrize("cuts", [[0, 5, 2], [0, 2, 4], [1, 5], [0], [0, 2, 2, 5]])
def test_cuts_that_do_not_fit(cuts):
    """Cuts that do not rise from 0 to the number of modules are refused before a process starts."""
    with pytest.raises(OptionError, match="cuts rise from 0 to the number of modules, 5"):
        profile(mlp(widths=(8, 64, 16, 4)), torch.zeros(6, 8), cuts=cuts)


def test_profile_refuses_before_it_starts():
    """A loss that does not fit, and what cannot be sent, are told without a process or a traceback from inside."""
    model = mlp(widths=(8, 16, 4))
    with pytest.raises(OptionError, match="loss_fn= fails on an output of shape"):
        profile(model, torch.zeros(6, 8), target=torch.zeros(6, 7, 3), loss_fn=torch.nn.functional.nll_loss)
    with pytest.raises(ExecutionError, match="loss_fn= cannot be sent"):
        profile(model, torch.zeros(6, 8), target=torch.zeros(6), loss_fn=lambda a, b: a.mean(), processes=2)
    with pytest.raises(OptionError, match="picks one device for this process"):
        profile(model, torch.zeros(6, 8), device="cuda:1", processes=2)
    with pytest.raises(OptionError, match="got 0 ranks"):
        profile(model, torch.zeros(6, 8), processes=0)
    with pytest.raises(OptionError, match="threads are at least 1"):
        profile(model, torch.zeros(6, 8), threads=0)
