"""The roofline: times computed by hand, and the tables that are made of them."""

from __future__ import annotations

import numpy as np
import pytest

from balance.problems.instances.catalogue import DeviceKind, device_kind
from balance.problems.instances.roofline import CostTables, Roofline, cost_tables
from balance.problems.instances.work import linear, pointwise, product, residual
from balance.problems.model.errors import OptionError
from balance.problems.model.graph import Configuration

SLOW = DeviceKind("slow", {"fp32": 100.0}, 1e3, 10.0, 5.0, "a test")
HALF = Roofline(compute_efficiency=0.5, bandwidth_efficiency=0.2, launch_seconds=1.0)


def test_the_slower_of_arithmetic_and_memory_counts() -> None:
    """100 FLOP take 2 s and 10 B take 5 s; each kernel 1 s more; nothing takes no time."""
    got = HALF.seconds(SLOW, "fp32", flops=[100, 1000, 0, 0], bytes=[10, 10, 10, 0], launches=[1, 1, 2, 1])
    assert got.tolist() == [6.0, 21.0, 7.0, 0.0]


def test_ring_allreduce() -> None:
    """Four devices take six steps of 1 s + 2 B / (5 B/s x 0.2); one device and no bytes take no time."""
    assert float(HALF.allreduce_seconds(SLOW, 8.0, 4)) == 6 * (1.0 + 2.0)
    assert float(HALF.allreduce_seconds(SLOW, 8.0, 1)) == 0.0
    assert float(HALF.allreduce_seconds(SLOW, 0.0, 4)) == 0.0


@pytest.mark.parametrize(
    "bad", [{"compute_efficiency": 0.0}, {"bandwidth_efficiency": 1.1}, {"launch_seconds": -1.0},
            {"launch_seconds": float("nan")}, {"compute_efficiency": "fast"}, {"launch_seconds": True},
            {"launch_seconds": 10**400}],
)  # fmt: skip
def test_fractions_are_fractions(bad: dict[str, float]) -> None:
    """Efficiencies are in (0, 1], the time to start a kernel is not negative."""
    with pytest.raises(OptionError, match=next(iter(bad))):
        Roofline(**bad)


def test_linear_does_three_equal_products() -> None:
    """A (2, 3) by (3, 5) product has 60 FLOP; forward, input and weight part are alike: backward has twice as many."""
    work = linear("x", 2, 3, 5, element=2, bias=True)
    assert work.forward.flops == 60.0
    assert work.forward.bytes == 2 * (6 + 15 + 10)
    assert work.forward == work.input_gradient == work.weight_gradient
    assert (work.parameters, work.kept_bytes) == (20, 12)


def test_product_of_activations_has_no_weight_part() -> None:
    """Both operands need a gradient: two products in the input part."""
    work = product("x", 2, 3, 4, 5, left=24, right=40, element=2, kept_bytes=7.0)
    assert work.forward.flops == 2 * 2 * 3 * 4 * 5
    assert work.forward.bytes == 2 * (24 + 40 + 30)
    assert work.input_gradient.flops == 2 * work.forward.flops
    assert (work.weight_gradient.flops, work.parameters) == (0.0, 0.0)


def test_memory_bound_operators() -> None:
    """A pointwise operator reads its input again on the way back; an addition keeps nothing."""
    work = pointwise("x", 10, 5, flops=15, element=4, kept_bytes=40)
    assert (work.forward.bytes, work.input_gradient.bytes) == (60, 100)
    added = residual("x", 10, element=4)
    assert (added.forward.bytes, added.input_gradient.bytes, added.kept_bytes) == (120, 120, 0)


def tables() -> CostTables:
    """Return three operators in two configurations on two kinds."""
    works = [
        [
            linear("a", 4, 8, 8 // t, element=4, reduced_forward=16.0),
            residual("b", 6, element=4),
            linear("c", 1, 2, 3, element=4),
        ]
        for t in (1, 2)
    ]
    columns = [Configuration(1), Configuration(2)]
    return cost_tables(works, columns, [SLOW, device_kind("a100-80gb")], "fp32", HALF)


def test_tables_add_allreduces_to_their_pass() -> None:
    """With two partners the forward pass of the first operator has an all-reduce of 16 B, 2 x (1 + 8) s."""
    costs = tables()
    assert costs.forward.shape == (2, 2, 3)
    alone = float(HALF.seconds(SLOW, "fp32", 2 * 4 * 8 * 8, 4 * (32 + 64 + 32)))
    half = float(HALF.seconds(SLOW, "fp32", 2 * 4 * 8 * 4, 4 * (32 + 32 + 16)))
    assert costs.forward[0, :, 0].tolist() == [alone, half + 18.0]
    assert costs.input_gradient[0, :, 0].tolist() == [alone, half]
    assert costs.parameter_bytes[:, 0].tolist() == [256.0, 128.0]


def test_grouped_operators_run_one_after_another() -> None:
    """Times and bytes of a group add up; of the workspace the largest counts."""
    costs, groups = tables(), tables().grouped(np.array([0, 2]))
    assert np.allclose(groups.forward[..., 0], costs.forward[..., :2].sum(axis=-1), rtol=1e-15)
    assert groups.workspace_bytes[:, 0].tolist() == costs.workspace_bytes[:, :2].max(axis=-1).tolist()
    assert groups.forward[..., 1].tolist() == costs.forward[..., 2].tolist()


def test_recomputation_doubles_the_configurations() -> None:
    """The second half keeps the inputs only, holds the rest while it works, and runs forward again."""
    costs = tables()
    again = costs.with_recomputation([True, False, True], 20.0)
    assert again.forward.shape == (2, 4, 3)
    assert again.kept_bytes[2:].tolist() == [[20.0, 0.0, 8.0]] * 2
    assert (again.workspace_bytes[2:] - costs.workspace_bytes).tolist() == [[108.0, 0.0, 0.0]] * 2
    extra = again.input_gradient[:, 2:] - costs.input_gradient
    assert np.allclose(extra, costs.forward * [1, 0, 1])
    assert again.weight_gradient[:, 2:].tolist() == costs.weight_gradient.tolist()


def test_inference_keeps_nothing() -> None:
    """The columns of an inference graph have no backward pass, activations or gradients to exchange."""
    assert set(tables().columns(training=False)) == {"forward", "parameter_bytes", "workspace_bytes"}
    columns = tables().columns(training=True)
    assert np.array_equal(columns["backward"], columns["backward_input"] + columns["backward_weight"])
