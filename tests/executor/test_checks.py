"""What does not fit is refused before a process is started."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn.functional import mse_loss
from unusual import Pair

from balance.executor import run, run_plans
from balance.executor.checks import gather_batches, lay_out
from balance.executor.engine import check_version
from balance.executor.launch import Ranks
from balance.executor.models import mlp
from balance.executor.modules import boundary_shapes
from balance.executor.runner import _check_devices
from balance.problems.model.cluster import Cluster
from balance.problems.model.errors import ExecutionError, GraphError, OptionError, PlanError, ScheduleError
from balance.problems.model.graph import Configuration, CostGraph
from balance.problems.model.plan import Plan, Replica, Stage


@pytest.fixture(autouse=True)
def _no_processes(monkeypatch):
    def refuse(self, *args, **options):
        raise AssertionError("a process would have been started")

    monkeypatch.setattr(Ranks, "__init__", refuse)


MODEL = mlp(widths=(4, 4, 4))
INPUTS, TARGETS = torch.zeros(8, 4), torch.zeros(8, 4)
GRAPH = CostGraph.chain([1.0, 1.0, 1.0], bytes=[0.0, 0.0], backward=1.0)


def absolute(output, target):
    """Return a loss per element, which is not one number."""
    return (output - target).abs()


def detached(output, target):
    """Return a loss without a gradient."""
    return mse_loss(output, target).detach()


def l1_loss_of_rows(output, target):
    """Fail on targets that are not rows."""
    return (output - target[:, None, None].expand(len(output), 3, 3)).abs().mean()


def local_module():
    """Return a module whose class no rank can import."""

    class Local(torch.nn.Module):
        def forward(self, value):
            return value

    return Local()


class Uncopied(torch.nn.Module):
    """Holds a tensor with a history, which cannot be copied."""

    def __init__(self):
        super().__init__()
        self.scaled = torch.nn.Parameter(torch.ones(4)) * 2

    def forward(self, value):
        """Scale."""
        return value * self.scaled


def attempt(plan, *, model=MODEL, inputs=INPUTS, targets=TARGETS, loss_fn=mse_loss, **options):
    """Try to run something that must be refused."""
    run(plan, model, inputs, targets, loss_fn=loss_fn, **options)


@pytest.mark.parametrize(
    ("plan", "error", "message"),
    [
        (Plan.chain([0, 1, 2], microbatches=4), PlanError, "splits 2 operators, but the model has 3 modules"),
        (Plan.chain([0, 2, 4], microbatches=4), PlanError, "splits 4 operators"),
        (Plan.chain([0, 0, 3], microbatches=4), PlanError, "stage 0 is empty"),
        (Plan.chain([0, 1, 3], [0, 0], microbatches=4), PlanError, "device 0 holds 2 stages"),
        (Plan.chain([0, 1, 3], order=[1, 0, 2], microbatches=4), PlanError, "goes on at operator 0"),
        (
            Plan.chain([0, 1, 3], recompute=[True, False], microbatches=4),
            PlanError,
            "stage 0 asks for recomputation",
        ),
        (Plan.chain([0, 1, 2, 3], microbatches=2), ScheduleError, "got 2 for 3 stages"),
        (Plan.chain([0, 1, 3], microbatches=4, schedule="1b1f"), ScheduleError, "did you mean '1f1b'"),
        (Plan.chain([0, 1, 3], microbatches=4, schedule="forward-only"), ScheduleError, "training=False"),
        (Plan.chain([0, 1, 3], microbatches=3), OptionError, "8 samples does not split into 3"),
        (Plan.chain([0, 1, 3], microbatches=4, microbatch_size=4), OptionError, "micro-batches of 4 samples"),
        (
            Plan((Stage([0, 1, 2], (Replica((0,), 0.5), Replica((1,), 0.5))),), microbatches=4),
            PlanError,
            "stage 0 has 2 replicas",
        ),
        (Plan.chain([0, 1, 3], microbatches=16), OptionError, "8 samples does not split into 16"),
        (Plan.chain([0, 1, 3], microbatches=4, schedule="interleaved-1f1b"), ScheduleError, "solve again"),
    ],
)
def test_plans_that_do_not_fit(plan, error, message):
    """Each misfit of plan and model is named before anything starts."""
    with pytest.raises(error, match=message):
        attempt(plan)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"steps": 1}, OptionError, "at least 2"),
        ({"loss_fn": None}, OptionError, "needs targets and loss_fn"),
        ({"targets": None}, OptionError, "needs targets and loss_fn"),
        ({"targets": torch.zeros(7, 4)}, OptionError, "8 inputs and 7 targets"),
        ({"inputs": "data"}, OptionError, "are tensors"),
        ({"inputs": [INPUTS, INPUTS]}, OptionError, "2 input batches come with 1"),
        ({"collect": ["gradient"]}, OptionError, "did you mean 'gradients'"),
        ({"collect": ["outputs"]}, OptionError, "forward-only"),
        ({"graph": CostGraph.chain([1.0, 2.0])}, PlanError, "has 2 operators, the model 3"),
        ({"inputs": torch.zeros(8, 5)}, GraphError, "module 0:Linear fails on an input of shape"),
        ({"model": torch.nn.Linear(4, 4)}, GraphError, "give a chain of modules"),
        ({"model": 3}, GraphError, "is a int"),
        ({"model": []}, GraphError, "no modules"),
        ({"model": [torch.nn.Tanh(), torch.nn.Tanh(), torch.nn.Tanh()]}, OptionError, "no parameter"),
        ({"device": "tpu"}, OptionError, "'tpu' is not supported"),
        ({"device": "cuda:x"}, OptionError, "'cuda:x' is not supported"),
        ({"inputs": [INPUTS, INPUTS.double()], "targets": [TARGETS] * 2}, OptionError, "same shape and type"),
        ({"inputs": [INPUTS] * 2, "targets": [TARGETS, TARGETS[:, :1]]}, OptionError, "target batches must have"),
        ({"inputs": torch.zeros(0, 4), "targets": torch.zeros(0, 4)}, OptionError, "0 samples does not split"),
        ({"inputs": torch.zeros(8, 4, device="meta")}, OptionError, "with data, got one on device meta"),
        ({"targets": torch.zeros(8, dtype=torch.int64), "loss_fn": l1_loss_of_rows}, OptionError, "loss_fn= fails on"),
        ({"loss_fn": absolute}, OptionError, r"must return one number, .* not shape \(2, 4\)"),
        ({"loss_fn": detached}, OptionError, "no gradient flows"),
        ({"loss_fn": lambda output, target: output.mean()}, ExecutionError, "loss_fn= cannot be sent"),
        ({"optimizer": lambda parameters: torch.optim.SGD(parameters)}, ExecutionError, "optimizer= cannot be sent"),
        ({"model": [*MODEL[:2], local_module()]}, ExecutionError, "module 2:Local cannot be sent"),
        ({"model": [*MODEL[:2], Pair()]}, GraphError, "module 2:Pair returns a tuple"),
        ({"model": [torch.nn.ReLU(inplace=True), *MODEL[1:]]}, GraphError, "0:ReLU changes its input in place"),
        ({"model": [MODEL[0], torch.nn.ReLU(inplace=True), MODEL[2]]}, GraphError, "build it with inplace=False"),
        ({"model": [*MODEL[:2], Uncopied()]}, GraphError, "2:Uncopied cannot be copied"),
        ({"graph": GRAPH, "cluster": Cluster.uniform(1)}, PlanError, "device"),
        ({"graph": GRAPH, "cluster": Cluster.uniform(2), "sends": "fast"}, OptionError, "sends='fast'"),
        ({"graph": GRAPH.replace(configurations=(Configuration(2),))}, PlanError, "tensor parallel degree 2"),
        (
            {"graph": GRAPH.replace(configurations=(Configuration(microbatch_size=4),))},
            PlanError,
            "micro-batches of 4 samples, the run's are of 2",
        ),
        ({"optimizer": torch.optim.LBFGS}, OptionError, "optimizer= must build an optimizer"),
    ],
)
def test_arguments_that_do_not_fit(options, error, message):
    """Each misfit of model, data and options is named before anything starts."""
    with pytest.raises(error, match=message):
        attempt(Plan.chain([0, 1, 3], microbatches=4), **options)


def test_tied_parameters_stay_together():
    """Modules that share a parameter may not be on different stages."""
    first = torch.nn.Linear(4, 4, bias=False)
    second = torch.nn.Linear(4, 4, bias=False)
    second.weight = first.weight
    model = torch.nn.Sequential(first, torch.nn.Tanh(), second)
    with pytest.raises(PlanError, match="0:Linear and 2:Linear share parameters"):
        attempt(Plan.chain([0, 1, 3], microbatches=4), model=model)


def test_untested_torch_is_refused():
    """Another torch is named together with what is tested."""
    check_version("2.13.1+cu128")
    with pytest.raises(ExecutionError, match=r"torch 2\.12\.0 is installed; .* >= 2\.13, < 2\.14"):
        check_version("2.12.0")


def test_trying_the_model_changes_nothing():
    """Finding shapes leaves parameters, running statistics and torch's random state alone."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5))
    before = copy.deepcopy(model.state_dict())
    state = torch.random.get_rng_state()
    shapes = boundary_shapes(list(model), torch.randn(6, 4, generator=torch.Generator()), training=True)
    assert [shape.shape for shape in shapes] == [(6, 4)] * 4
    assert [shape.requires_grad for shape in shapes] == [False, True, True, True]
    assert torch.equal(state, torch.random.get_rng_state())
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key]), key


def test_batches_stay_as_they_were():
    """A module that writes into its input does not reach the user's batch."""
    inputs = torch.full((8, 4), -1.0)
    with pytest.raises(GraphError, match="in place"):
        attempt(
            Plan.chain([0, 1, 3], microbatches=4),
            model=[torch.nn.ReLU(inplace=True), *MODEL[1:]],
            inputs=inputs,
            training=False,
        )
    assert (inputs == -1.0).all()


def test_only_the_batch_is_sent():
    """A slice of a large data set travels without the rest of it, and without its history."""
    data = torch.zeros(1000, 4, requires_grad=True)
    batches = gather_batches(data[:8], [data[8:16] * 2])
    for one in (*batches.inputs, *batches.targets):
        assert one.untyped_storage().nbytes() == 8 * 4 * 4
        assert not one.requires_grad


def test_graphs_by_plan_are_checked():
    """One graph per plan must be named like the plans."""
    plan = Plan.chain([0, 1, 3], microbatches=4)
    with pytest.raises(OptionError, match=r"'evem', which is no plan \(did you mean 'even'"):
        run_plans({"even": plan}, MODEL, INPUTS, TARGETS, loss_fn=mse_loss, graph={"evem": GRAPH})


def test_stages_must_be_on_their_ranks_devices():
    """On accelerators a second plan on other devices, or ranks on other devices, are refused; on CPU all are alike."""
    batches = gather_batches(INPUTS, TARGETS)
    plans = {"one": Plan.chain([0, 1, 3], [0, 1], microbatches=4), "two": Plan.chain([0, 1, 3], [1, 0], microbatches=4)}
    layouts = {name: lay_out(plan, list(MODEL), batches, True) for name, plan in plans.items()}
    with pytest.raises(PlanError, match="plan 'two' has stage 0 on device 1, but rank 0 runs on cuda:0"):
        _check_devices(layouts, ["cuda:0", "cuda:1"])
    _check_devices({"one": layouts["one"]}, ["cuda:0", "cuda:1"])
    _check_devices(layouts, ["cpu", "cpu"])
