"""Front door: minimising the sum of the largest forward and the largest backward load, shared by the wings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from balance.limits import Run

Found = TypeVar("Found")
Search = Callable[[int, float, float], tuple[float, Found] | None]


def _next_below(value: float) -> float:
    return float(np.nextafter(value, -np.inf))


def sweep(
    search: Search[Found], run: Run, below: Callable[[float], float] = _next_below
) -> tuple[float, float, Found] | None:
    """Walk the Pareto front of (largest forward load, largest backward load) and return its least sum.

    Parameters
    ----------
    search
        ``search(mode, most_forward, most_backward)`` returns the least largest forward (mode 1) or backward (mode 2)
        load among divisions whose loads stay within the two limits, with its division; None if there is none, or if
        `run` stopped it.
    run
        Asked whether to stop.
    below
        The largest value below a load; by default the next floating-point number.

    Returns
    -------
    tuple or None
        (sum, proved lower bound, division); None if there is no division at all. Points come in order of growing
        forward load; the walk ends when that load plus the least possible backward load reaches the best sum.
    """
    least_backward = search(2, np.inf, np.inf)
    if least_backward is None:
        return None
    best: tuple[float, Found] | None = None
    forward_floor = 0.0
    most_backward = np.inf
    while not run.should_stop():
        first = search(1, np.inf, most_backward)
        if first is None and run.should_stop():
            break  # the search was cut short: it proves nothing
        if first is None or (best is not None and first[0] + least_backward[0] >= best[0]):
            forward_floor = np.inf
            break
        forward_floor = first[0]
        second = search(2, first[0], np.inf)
        if second is None:
            break  # cut short as well, since the division behind `first` is one
        if best is None or first[0] + second[0] < best[0]:
            best = (first[0] + second[0], second[1])
        most_backward = below(second[0])
    if best is None:
        return None
    return best[0], min(best[0], forward_floor + least_backward[0]), best[1]
