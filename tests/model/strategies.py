"""Schedules drawn by Hypothesis."""

from __future__ import annotations

import random

from hypothesis import strategies as st


@st.composite
def valid_rows(draw: st.DrawFn) -> list[list[str]]:
    """Draw rows that follow one global order of the work, so that they can be run."""
    stages, count = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    devices = draw(st.integers(1, 3))
    home = [draw(st.integers(0, devices - 1)) for _ in range(stages)]
    split = draw(st.booleans())
    choose = random.Random(draw(st.integers(0, 2**32)))
    done: set[str] = set()
    rows: list[list[str]] = [[] for _ in range(devices)]
    left = [f"{s}{k}{m}" for s in range(stages) for m in range(count) for k in ("FIW" if split else "FB")]

    def ready(action: str) -> bool:
        stage, letter, m = int(action[0]), action[1], action[2:]
        if letter == "F":
            return stage == 0 or f"{stage - 1}F{m}" in done
        if letter == "W":
            return f"{stage}I{m}" in done
        return f"{stage}F{m}" in done if stage == stages - 1 else f"{stage + 1}{letter}{m}" in done

    while left:
        action = choose.choice([a for a in left if ready(a)])
        left.remove(action)
        done.add(action)
        rows[home[int(action[0])]].append(action)
    return rows
