"""What does not fit is refused before a process is started."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn.functional import mse_loss

from balance.executor import run
from balance.executor.engine import check_version
from balance.executor.launch import Ranks
from balance.executor.models import mlp
from balance.executor.modules import boundary_shapes
from balance.problems.model.errors import ExecutionError, GraphError, OptionError, PlanError, ScheduleError
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Plan, Replica, Stage


@pytest.fixture(autouse=True)
def _no_processes(monkeypatch):
    def refuse(self, *args, **options):
        raise AssertionError("a process would have been started")

    monkeypatch.setattr(Ranks, "__init__", refuse)


MODEL = mlp(widths=(4, 4, 4))
INPUTS, TARGETS = torch.zeros(8, 4), torch.zeros(8, 4)


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
