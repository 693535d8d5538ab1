"""Tests of the schedule templates."""

from __future__ import annotations

from itertools import product

import pytest

from balance.problems.model.errors import OptionError, ScheduleError
from balance.problems.model.schedule import Schedule
from balance.problems.model.templates import build_schedule, in_flight, list_schedules

SHAPES = [(s, v, m) for s, v, m in product((1, 2, 3, 4, 6, 8), (1, 2, 3), (1, 2, 3, 4, 5, 8, 12)) if s % v == 0]


def held_at_most(schedule: Schedule, stage: int) -> int:
    """Count the micro-batches that a stage holds by walking through its row."""
    most, held = 0, set()
    for row in schedule.rows():
        for cell in row:
            if cell.startswith((f"{stage}F", f"{stage}B")):
                if cell.startswith(f"{stage}F"):
                    held.add(cell.split("F")[1])
                    most = max(most, len(held))
                    if not schedule.training:
                        held.clear()
                else:
                    held.remove(cell.split("B")[1])
    return most


@pytest.mark.parametrize("name", list_schedules())
@pytest.mark.parametrize("training", [True, False])
def test_every_template_is_valid_and_knows_what_is_in_flight(name: str, training: bool) -> None:
    """Over a grid: schedules are valid, and both counts of micro-batches in flight equal a walk through the rows."""
    built = 0
    for stages, chunks, count in SHAPES:
        try:
            schedule = build_schedule(name, stages, count, training=training, chunks=chunks)
        except ScheduleError:
            devices = stages // chunks
            uneven = count % max(1, count // devices) > 0
            assert (name == "1f1b" and chunks > 1) or (name == "interleaved-1f1b" and uneven)
            continue
        built += 1
        schedule.validate()
        assert schedule.training == (training and name != "forward-only")
        assert (schedule.n_stages, schedule.microbatches) == (stages, count)
        walked = [held_at_most(schedule, s) for s in range(stages)]
        assert schedule.peak_in_flight().tolist() == walked
        assert [in_flight(name, stages, count, s, chunks=chunks, training=training) for s in range(stages)] == walked
    assert built >= 40


def test_in_flight_of_the_literature() -> None:
    """GPipe holds all micro-batches, 1F1B one per stage from here to the end."""
    for stages, count in product(range(1, 7), range(1, 9)):
        for s in range(stages):
            assert in_flight("gpipe", stages, count, s) == count
            assert in_flight("1f1b", stages, count, s) == min(count, stages - s)


def test_rows_by_hand() -> None:
    """Small schedules, written out."""
    assert build_schedule("gpipe", 2, 2).rows() == [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1F1", "1B0", "1B1"]]
    assert build_schedule("1f1b", 2, 3).rows() == [
        ["0F0", "0F1", "0B0", "0F2", "0B1", "0B2"],
        ["1F0", "1B0", "1F1", "1B1", "1F2", "1B2"],
    ]
    assert build_schedule("forward-only", 2, 2, devices=[3, 1]).rows() == [[], ["1F0", "1F1"], [], ["0F0", "0F1"]]
    assert build_schedule("1f1b", 2, 1, training=False).rows() == [["0F0"], ["1F0"]]
    assert build_schedule("gpipe", 2, 2, devices=[0, 0]).rows() == [
        ["0F0", "0F1", "1F0", "1F1", "1B0", "1B1", "0B0", "0B1"]
    ]


@pytest.mark.parametrize(
    ("devices", "count", "chunks"), [(2, 4, 2), (4, 10, 3), (4, 16, 4), (3, 3, 2), (2, 2, 3), (4, 6, 2)]
)
def test_interleaved_is_that_of_torch(devices: int, count: int, chunks: int) -> None:
    """The same rows as torch's own generator makes."""
    visualizer = pytest.importorskip("torch.distributed.pipelining._schedule_visualizer")
    theirs = visualizer.get_schedule_ops("Interleaved1F1B", devices, count, chunks)
    rows = [[str(action) for action in row if action is not None] for row in theirs]
    assert build_schedule("interleaved-1f1b", devices * chunks, count, chunks=chunks).rows() == rows


def test_devices_in_any_order() -> None:
    """Interleaved stages go round over devices in the order in which they come first."""
    plain = build_schedule("interleaved-1f1b", 6, 6, chunks=2)
    moved = build_schedule("interleaved-1f1b", 6, 6, devices=[4, 0, 2, 4, 0, 2])
    rows = plain.rows()
    assert moved.rows() == [rows[1], [], rows[2], [], rows[0]]
    moved.validate()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("1f1b", 4, 4, [0, 1, 0, 1]), "device 0 holds the stages 0, 2"),
        (("interleaved-1f1b", 4, 4, [0, 0, 1, 1]), "do not go round"),
        (("interleaved-1f1b", 3, 4, [0, 1, 0]), "do not go round"),
        (("interleaved-1f1b", 8, 5, [0, 1, 0, 1, 0, 1, 0, 1]), "use 4 or 6 micro-batches"),
        (("gpipe", 2, 2, [0]), "device of each of 2 stages"),
        (("gpipe", 2, 2, [0, -1]), "device of each of 2 stages"),
        (("gpipe", 0, 2), "n_stages must be"),
        (("gpipe", 2, 0), "microbatches must be"),
        (("gpipe", 10**6, 10**6), "too many actions"),
        (("gpipe", 4, 4, [0, 1, 2, 3], True, 2), "are not 2 chunks"),
        (("gpipe", 3, 4, None, True, 2), "do not divide"),
    ],
)
def test_what_cannot_be_built(arguments: tuple[object, ...], says: str) -> None:
    """Stages, devices and micro-batches that do not fit are refused with what to do."""
    with pytest.raises(ScheduleError, match=says):
        build_schedule(*arguments)  # type: ignore[arg-type]


def test_unknown_names() -> None:
    """The nearest known name is offered."""
    with pytest.raises(OptionError, match="did you mean 'gpipe'"):
        build_schedule("gpip", 2, 2)
    with pytest.raises(OptionError, match="did you mean '1f1b'"):
        in_flight("1F1B".lower() + "x", 2, 2, 0)
    with pytest.raises(ScheduleError, match="no stage 2"):
        in_flight("gpipe", 2, 2, 2)
