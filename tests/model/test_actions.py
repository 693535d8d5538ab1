"""Tests of actions as they are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance.problems.model.actions import LETTERS, Action, Kind
from balance.problems.model.errors import ScheduleError


@given(st.integers(0, 10**9 - 1), st.sampled_from(Kind), st.integers(0, 10**9 - 1))
def test_written_and_read(stage: int, kind: Kind, microbatch: int) -> None:
    """Reading what was written gives the same action."""
    action = Action(stage, kind, microbatch)
    assert Action.parse(str(action)) == action
    assert str(action) == f"{stage}{kind.letter}{microbatch}"


@pytest.mark.parametrize(
    "text",
    [
        "0F0junk", "x0F0", " 0F0", "0F0 ", "0F0\n", "0 F0", "F0", "0F", "", "0f0", "0X0", "-1F0", "0F-1", "01F0",
        "0F00", "٣F0", "0F1234567890", "0F1.0", "0FF0", "0SEND_F0", None, 3, ["0F0"],
    ],
)  # fmt: skip
def test_nothing_else_is_an_action(text: object) -> None:
    """Junk before, between or after the parts, other letters, signs and other digits are refused, and shown."""
    with pytest.raises(ScheduleError, match="is not an action"):
        Action.parse(text)  # type: ignore[arg-type]


def test_long_junk_is_cut() -> None:
    """A megabyte of junk does not fill the message."""
    with pytest.raises(ScheduleError) as caught:
        Action.parse("9" * 10**6)
    assert len(str(caught.value)) < 200


def test_letters_follow_the_kinds() -> None:
    """Letters and numbers of the kinds are those that files and arrays rely on."""
    assert "".join(kind.letter for kind in Kind) == LETTERS == "FBIWEL"
    assert [int(kind) for kind in Kind] == list(range(6))
