"""Cut wing: the compiled loops of annealing. Imported only when a solver runs, since it loads Numba.

Every function is plain Python over arrays; its twin without compilation is its ``py_func``. A place is a stage of a
pipeline, or a device where stages have no order.
"""

# N, H and S are the sizes that the documentation uses.
# ruff: noqa: N806

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit


class Moves(NamedTuple):
    """What decides loads and moves; N blocks, H nets, S places."""

    work: Any  # (S, 2, N) int64 seconds of each block on each place
    barred: Any  # (S, N) bool
    held: Any  # (S, N) bytes of each block on each place
    room: Any  # (S,) bytes
    pays: Any  # (S,) bool
    nets_at: Any  # (N + 1,) nets of block v: nets[nets_at[v] : nets_at[v + 1]]
    nets: Any
    pins_at: Any  # (H + 1,) blocks of net h: pins[pins_at[h] : pins_at[h + 1]]
    pins: Any
    producer: Any  # (H,)
    weight: Any  # (2, H) int64
    before_at: Any  # (N + 1,) blocks that are not behind v: before[before_at[v] : before_at[v + 1]]
    before: Any
    after_at: Any
    after: Any
    ordered: Any  # bool: places are in pipeline order
    each: Any  # bool: the sender pays for each reading place
    overlap: Any  # bool
    flush: Any  # bool: largest forward plus largest backward load


class State(NamedTuple):
    """A division and what follows from it."""

    label: Any  # (N,) place of each block
    inside: Any  # (H, S) int32 blocks of a net on each place
    touched: Any  # (H,) int32 places that a net touches
    taken: Any  # (2, S) received per phase
    given: Any  # (2, S) sent per phase
    done: Any  # (2, S) work per phase
    bytes: Any  # (S,)


@njit(cache=True, nogil=True)
def _pay(moves: Any, state: Any, h: Any, s: Any, home: Any, sign: Any) -> Any:
    """Add (or take away) what place s pays for net h whose producer is at `home`."""
    if state.inside[h, s] == 0 or not moves.pays[s]:
        return
    size = moves.pins_at[h + 1] - moves.pins_at[h]
    if s != home:
        for f in range(2):
            state.taken[f, s] += sign * moves.weight[f, h]
    elif state.inside[h, s] < size:
        ways = state.touched[h] - 1 if moves.each else 1
        for f in range(2):
            state.given[f, s] += sign * ways * moves.weight[f, h]


@njit(cache=True, nogil=True)
def move(moves: Any, state: Any, v: Any, t: Any) -> Any:
    """Put block v on place t and bring everything that follows up to date."""
    s = state.label[v]
    for at in range(moves.nets_at[v], moves.nets_at[v + 1]):
        h = moves.nets[at]
        home = state.label[moves.producer[h]]
        _pay(moves, state, h, s, home, -1)
        _pay(moves, state, h, t, home, -1)
        if home != s and home != t:
            _pay(moves, state, h, home, home, -1)
        state.inside[h, s] -= 1
        if state.inside[h, s] == 0:
            state.touched[h] -= 1
        if state.inside[h, t] == 0:
            state.touched[h] += 1
        state.inside[h, t] += 1
        if moves.producer[h] == v:
            home = t
        _pay(moves, state, h, s, home, 1)
        _pay(moves, state, h, t, home, 1)
        if home != s and home != t:
            _pay(moves, state, h, home, home, 1)
    for f in range(2):
        state.done[f, s] -= moves.work[s, f, v]
        state.done[f, t] += moves.work[t, f, v]
    state.bytes[s] -= moves.held[s, v]
    state.bytes[t] += moves.held[t, v]
    state.label[v] = t


@njit(cache=True, nogil=True)
def loads(moves: Any, state: Any, s: Any) -> Any:
    """Return (total, forward, backward) load of a place."""
    if moves.overlap:
        f = max(state.done[0, s], state.taken[0, s], state.given[0, s])
        b = max(state.done[1, s], state.taken[1, s], state.given[1, s])
        work = state.done[0, s] + state.done[1, s]
        total = max(work, state.taken[0, s] + state.taken[1, s], state.given[0, s] + state.given[1, s])
        return total, f, b
    f = state.done[0, s] + state.taken[0, s] + state.given[0, s]
    b = state.done[1, s] + state.taken[1, s] + state.given[1, s]
    return f + b, f, b


@njit(cache=True, nogil=True)
def objective(moves: Any, state: Any) -> Any:
    """Return the scaled objective of the division."""
    most = most_f = most_b = 0
    for s in range(len(moves.room)):
        total, f, b = loads(moves, state, s)
        most, most_f, most_b = max(most, total), max(most_f, f), max(most_b, b)
    return most_f + most_b if moves.flush else most


@njit(cache=True, nogil=True)
def _energy(moves: Any, state: Any, s: Any, unit: Any, power: Any) -> Any:
    total, f, b = loads(moves, state, s)
    if moves.flush:
        return (f / unit) ** power + (b / unit) ** power
    return (total / unit) ** power


@njit(cache=True, nogil=True)
def window(moves: Any, state: Any, v: Any) -> Any:
    """Return the first and the last place where block v keeps the order."""
    low, high = 0, len(moves.room) - 1
    if moves.ordered:
        for at in range(moves.before_at[v], moves.before_at[v + 1]):
            low = max(low, state.label[moves.before[at]])
        for at in range(moves.after_at[v], moves.after_at[v + 1]):
            high = min(high, state.label[moves.after[at]])
    return low, high


@njit(cache=True, nogil=True)
def anneal(
    moves: Any, state: Any, rng: Any, count: Any, hot: Any, cold: Any, unit: Any, power: Any, best: Any, best_label: Any
) -> Any:
    """Try `count` moves at a falling temperature; return the best objective, its labels go into `best_label`.

    The energy is the sum of the loads' powers, in units of `unit`; a move that raises it by x is taken with probability
    exp(-x / temperature).
    """
    N, S = len(state.label), len(moves.room)
    energy = np.zeros(S)
    for s in range(S):
        energy[s] = _energy(moves, state, s, unit, power)
    cooling = (cold / hot) ** (1.0 / max(count, 1))
    temperature = hot
    for _ in range(count):
        temperature *= cooling
        v = rng.integers(0, N)
        s = state.label[v]
        low, high = window(moves, state, v)
        if low == high:
            continue
        t = low + rng.integers(0, high - low)
        if t >= s:
            t += 1
        first, last = moves.nets_at[v], moves.nets_at[v + 1]
        if last > first and rng.random() < 0.5:  # to a place where a net of the block is already
            h = moves.nets[first + rng.integers(0, last - first)]
            u = moves.pins[moves.pins_at[h] + rng.integers(0, moves.pins_at[h + 1] - moves.pins_at[h])]
            t = state.label[u]
            if t == s or t < low or t > high:
                continue
        if moves.barred[t, v] or state.bytes[t] + moves.held[t, v] > moves.room[t]:
            continue
        old = energy.sum()
        move(moves, state, v, t)
        if moves.each:
            new = 0.0
            for x in range(S):
                new += _energy(moves, state, x, unit, power)
            rise = new - old
        else:
            new_s, new_t = _energy(moves, state, s, unit, power), _energy(moves, state, t, unit, power)
            rise = new_s + new_t - energy[s] - energy[t]
        if rise > 0.0 and rng.random() >= np.exp(-rise / temperature):
            move(moves, state, v, s)
            continue
        if moves.each:
            for x in range(S):
                energy[x] = _energy(moves, state, x, unit, power)
        else:
            energy[s], energy[t] = new_s, new_t
        value = objective(moves, state)
        if value < best:
            best = value
            best_label[:] = state.label
    return best


@njit(cache=True, nogil=True)
def build(moves: Any, label: Any) -> Any:
    """Return the state of a division."""
    N, S, H = len(label), len(moves.room), len(moves.producer)
    inside = np.zeros((H, S), dtype=np.int32)
    touched = np.zeros(H, dtype=np.int32)
    for h in range(H):
        for at in range(moves.pins_at[h], moves.pins_at[h + 1]):
            s = label[moves.pins[at]]
            if inside[h, s] == 0:
                touched[h] += 1
            inside[h, s] += 1
    taken, given = np.zeros((2, S), dtype=np.int64), np.zeros((2, S), dtype=np.int64)
    done, held = np.zeros((2, S), dtype=np.int64), np.zeros(S)
    state = State(label.copy(), inside, touched, taken, given, done, held)
    for h in range(H):
        home = label[moves.producer[h]]
        for s in range(S):
            _pay(moves, state, h, s, home, 1)
    for v in range(N):
        s = label[v]
        for f in range(2):
            done[f, s] += moves.work[s, f, v]
        held[s] += moves.held[s, v]
    return state
