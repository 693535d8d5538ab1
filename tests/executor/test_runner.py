"""Runs on real processes against the same model in one process."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch.nn.functional import mse_loss
from unusual import Turn

from balance.executor import RunReport, profile, run, run_plans
from balance.executor.models import cnn, gpt, mlp, token_loss
from balance.problems.model.cluster import Cluster
from balance.problems.model.errors import PlanError
from balance.problems.model.plan import Plan

CUTS = {1: [0, 7], 2: [0, 5, 7], 3: [0, 1, 5, 7]}


@pytest.fixture(params=[1, 2, 3])
def world(request: pytest.FixtureRequest):
    """Return processes and uneven cuts of a seven-module chain."""
    name = {1: "one_rank", 2: "two_ranks", 3: "three_ranks"}[request.param]
    return request.getfixturevalue(name), CUTS[request.param]


def small_problem():
    """Return a float64 model, inputs and targets."""
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(24, 8, dtype=torch.float64, generator=generator)
    targets = torch.randn(24, 4, dtype=torch.float64, generator=generator)
    return mlp(widths=(8, 16, 16, 16, 4)).double(), inputs, targets


def gradients_of(model, loss):
    """Return the gradients of a model by parameter name."""
    model.zero_grad()
    loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def assert_same(found, expected, tolerance=1e-14):
    """Compare dictionaries of tensors."""
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-12, atol=tolerance, msg=name)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_loss_and_gradients_equal_one_process(world, schedule):
    """Loss and every gradient equal the single-process run, for uneven cuts on 1 to 3 processes."""
    ranks, cuts = world
    model, inputs, targets = small_problem()
    plan = Plan.chain(cuts, microbatches=6, schedule=schedule)
    report = run(plan, model, inputs, targets, loss_fn=mse_loss, steps=3, collect=["gradients"], ranks=ranks)
    loss = mse_loss(model(inputs), targets)
    np.testing.assert_allclose(report.losses, loss.item(), rtol=1e-13)
    assert_same(report.collected["gradients"], gradients_of(model, loss))


def test_forward_only_outputs_equal_one_process(world):
    """A forward-only run returns the model's outputs and leaves no losses."""
    ranks, cuts = world
    model, inputs, _ = small_problem()
    plan = Plan.chain(cuts, microbatches=4, schedule="forward-only")
    report = run(plan, model, inputs, training=False, steps=2, collect=["outputs"], ranks=ranks)
    torch.testing.assert_close(report.collected["outputs"], model(inputs).detach(), rtol=0, atol=1e-14)
    assert np.isnan(report.losses).all()
    assert report.records[0].kind.tolist() == [0, 0, 0, 0]


def test_attention_model_trains_like_one_process(two_ranks):
    """After three AdamW steps on changing batches the parameters equal those of a single process."""
    model = gpt(vocabulary=32, context=6, width=8, heads=2, blocks=2).double()
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randint(32, (4, 6), generator=generator) for _ in range(3)]
    targets = [torch.randint(32, (4, 6), generator=generator) for _ in range(3)]
    optimizer = partial(torch.optim.AdamW, lr=1e-2)
    plan = Plan.chain([0, 3, 4], microbatches=2)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    report = run(
        plan,
        model,
        inputs,
        targets,
        loss_fn=token_loss,
        optimizer=optimizer,
        steps=3,
        collect=["parameters"],
        ranks=two_ranks,
    )
    assert_same({name: parameter.detach() for name, parameter in model.named_parameters()}, before, 0.0)
    reference = optimizer(list(model.parameters()))
    losses = []
    for one, other in zip(inputs, targets, strict=True):
        reference.zero_grad()
        loss = token_loss(model(one), other)
        loss.backward()
        reference.step()
        losses.append(loss.item())
    np.testing.assert_allclose(report.losses, losses, rtol=1e-10)
    expected = {name: parameter.detach() for name, parameter in model.named_parameters()}
    assert_same(report.collected["parameters"], expected, 1e-9)
    assert report.state_factor == 4.0


def test_convolutions_run_too(two_ranks):
    """A convolutional chain gives the single-process gradients."""
    model = cnn(channels=(3, 4, 8)).double()
    inputs = torch.randn(4, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    targets = torch.randn(4, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    plan = Plan.chain([0, 1, 4], microbatches=2, schedule="gpipe")
    report = run(plan, model, inputs, targets, loss_fn=mse_loss, steps=2, collect=["gradients"], ranks=two_ranks)
    assert_same(report.collected["gradients"], gradients_of(model, mse_loss(model(inputs), targets)))


def test_views_and_frozen_parameters_cross_boundaries(two_ranks):
    """A boundary tensor that is a transposed view, behind a frozen first stage, changes nothing in the result."""
    model = torch.nn.Sequential(torch.nn.Linear(5, 5), Turn(), Turn(), torch.nn.Linear(5, 5)).double()
    model[0].requires_grad_(False)
    inputs = torch.randn(8, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    targets = torch.zeros(8, 3, 5, dtype=torch.float64)
    plan = Plan.chain([0, 2, 4], microbatches=4)
    report = run(plan, model, inputs, targets, loss_fn=mse_loss, steps=2, collect=["gradients"], ranks=two_ranks)
    model.zero_grad()
    mse_loss(model(inputs), targets).backward()
    assert_same(report.collected["gradients"], {f"3.{name}": p.grad for name, p in model[3].named_parameters()})


def test_records_are_consistent(two_ranks):
    """Actions lie inside their step, do not overlap, and follow the 1F1B order; memory counts what is in flight."""
    model, inputs, targets = small_problem()
    plan = Plan.chain(CUTS[2], microbatches=4)
    report = run(plan, model, inputs, targets, loss_fn=mse_loss, steps=4, ranks=two_ranks)
    first, last = report.records
    assert [f"{'FB'[k]}{m}" for k, m in zip(last.kind, last.microbatch, strict=True)] == [
        "F0", "B0", "F1", "B1", "F2", "B2", "F3", "B3",
    ]  # fmt: skip
    for record in report.records:
        assert (record.action_start >= record.start[:, None]).all()
        assert (record.action_end <= record.end[:, None]).all()
        assert (record.action_start[:, 1:] >= record.action_end[:, :-1]).all()
        assert (record.durations > 0).all()
    assert (first.memory_bytes["in_flight"], last.memory_bytes["in_flight"]) == (2.0, 1.0)
    # Six samples of 16 float64 at the boundary, one receive buffer per micro-batch.
    assert first.memory_bytes["receive_buffers"] == last.memory_bytes["receive_buffers"] == 4 * 6 * 16 * 8
    assert first.memory_bytes["gradients"] == first.memory_bytes["parameters"]
    assert report.achieved_step == float(np.median(report.step_seconds[1:]))
    assert 0 < report.achieved_bubble < 1


def test_predicted_memory_is_what_is_held(two_ranks):
    """Parameters, gradients, optimizer, buffers and activations in flight, as predicted, equal what is counted."""
    model = gpt(vocabulary=512, context=16, width=32, heads=2, blocks=3)
    tokens = torch.randint(512, (8, 17), generator=torch.Generator().manual_seed(1))
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    options = {"loss_fn": token_loss, "optimizer": partial(torch.optim.AdamW, lr=1e-3), "ranks": two_ranks}
    graph = profile(model, inputs[:2], target=targets[:2], repeats=2, warmup=1, **options)
    cluster = Cluster.uniform(2, kind="cpu", latency=1e-4, bandwidth=1e9)
    for schedule in ("1f1b", "gpipe"):
        plan = Plan.chain([0, 3, 5], microbatches=4, schedule=schedule)
        report = run(plan, model, inputs, targets, steps=2, graph=graph, cluster=cluster, **options)
        np.testing.assert_allclose(report.predicted_memory, report.achieved_memory, rtol=0.02)
        assert report.predicted_step > 0
        assert np.isfinite([report.error, report.structure_error]).all()


def test_plans_take_turns(two_ranks):
    """Several plans run in the same processes and each gets its own report."""
    model, inputs, targets = small_problem()
    plans = {"even": Plan.chain([0, 4, 7], microbatches=4), "skewed": Plan.chain([0, 6, 7], microbatches=4)}
    reports = run_plans(plans, model, inputs, targets, loss_fn=mse_loss, steps=3, ranks=two_ranks)
    assert list(reports) == ["even", "skewed"]
    assert all(isinstance(report, RunReport) for report in reports.values())
    # Step 1 runs in the opposite order of step 0, so that neither plan is always first.
    assert reports["even"].records[0].start[0] < reports["skewed"].records[0].start[0]
    assert reports["even"].records[0].start[1] > reports["skewed"].records[0].start[1]


def test_ranks_must_match_the_plan(two_ranks):
    """A plan of three stages does not run on two ranks, and the ranks live on."""
    model, inputs, targets = small_problem()
    with pytest.raises(PlanError, match="3 stages, but 2 ranks"):
        run(Plan.chain(CUTS[3], microbatches=6), model, inputs, targets, loss_fn=mse_loss, ranks=two_ranks)
    assert run(
        Plan.chain(CUTS[2], microbatches=6),
        model,
        inputs,
        targets,
        loss_fn=mse_loss,
        steps=2,
        ranks=two_ranks,
    )


@pytest.mark.gpu
def test_one_cuda_stage_equals_cpu():
    """One stage on CUDA gives the gradients of the CPU."""
    model, inputs, targets = small_problem()
    plan = Plan.chain(CUTS[1], microbatches=2)
    report = run(
        plan,
        model,
        inputs,
        targets,
        loss_fn=mse_loss,
        steps=3,
        collect=["gradients"],
        device="cuda",
        timeout=120,
    )
    assert_same(report.collected["gradients"], gradients_of(model, mse_loss(model(inputs), targets)), 1e-10)
    assert report.records[0].memory_bytes["peak"] > 0


def test_what_is_drawn_depends_on_seed_and_step_alone(two_ranks):
    """Dropout gives the same losses again on the same ranks, also next to another plan; another seed gives others."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 4)).double()
    _, inputs, targets = small_problem()
    plan = Plan.chain([0, 2, 3], microbatches=4)
    options = {"loss_fn": mse_loss, "steps": 3, "ranks": two_ranks}
    alone = run(plan, model, inputs, targets, **options).losses
    both = run_plans(
        {"first": Plan.chain([0, 1, 3], microbatches=4), "second": plan}, model, inputs, targets, **options
    )
    np.testing.assert_array_equal(both["second"].losses, alone)
    assert len(set(alone.tolist())) == 3
    assert (run(plan, model, inputs, targets, seed=1, **options).losses != alone).all()


def test_modules_keep_their_mode(two_ranks):
    """A model in evaluation mode runs without dropout and with its running statistics."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5)).double().eval()
    _, inputs, _ = small_problem()
    plan = Plan.chain([0, 1, 3], microbatches=4)
    report = run(plan, model, inputs, training=False, steps=2, collect=["outputs"], ranks=two_ranks)
    torch.testing.assert_close(report.collected["outputs"], model(inputs).detach(), rtol=0, atol=1e-14)


def test_tied_weights_on_one_stage(two_ranks):
    """A weight that two modules of a stage share gets the gradient of both, and counts once."""
    first, last = torch.nn.Linear(8, 8, bias=False), torch.nn.Linear(8, 8, bias=False)
    last.weight = first.weight
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), first, torch.nn.Tanh(), last).double()
    _, inputs, _ = small_problem()
    plan = Plan.chain([0, 1, 4], microbatches=4)
    targets = torch.zeros(24, 8, dtype=torch.float64)
    report = run(plan, model, inputs, targets, loss_fn=mse_loss, steps=2, collect=["gradients"], ranks=two_ranks)
    expected = gradients_of(model, mse_loss(model(inputs), targets))
    assert_same({key: report.collected["gradients"][key] for key in expected}, expected)
    torch.testing.assert_close(report.collected["gradients"]["3.weight"], expected["1.weight"])
    assert report.records[1].memory_bytes["parameters"] == 8 * 8 * 8


def test_profile_by_stages_predicts_memory_and_names_the_error(two_ranks):
    """Graphs made with each plan's own cuts predict what is held, and the report takes the error apart."""
    model = gpt(vocabulary=512, context=16, width=32, heads=2, blocks=3)
    tokens = torch.randint(512, (8, 17), generator=torch.Generator().manual_seed(1))
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    options = {"loss_fn": token_loss, "optimizer": partial(torch.optim.AdamW, lr=1e-3), "ranks": two_ranks}
    cuts = {"left": [0, 2, 5], "right": [0, 4, 5]}
    graphs = {
        name: profile(model, inputs[:2], target=targets[:2], repeats=2, warmup=1, cuts=one, **options)
        for name, one in cuts.items()
    }
    cluster = Cluster.uniform(2, kind="cpu", latency=1e-4, bandwidth=1e9)
    plans = {name: Plan.chain(one, microbatches=4) for name, one in cuts.items()}
    for name, report in run_plans(
        plans, model, inputs, targets, steps=3, graph=graphs, cluster=cluster, **options
    ).items():
        assert report.graph is graphs[name]
        np.testing.assert_allclose(report.predicted_memory, report.achieved_memory, rtol=0.02)
        assert 0 < report.on_cpu <= 1.01
        assert report.duration_error is not None
        assert "By CPU time they are off by" in report.explanation()[1]
