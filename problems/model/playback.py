"""Model room: playing a schedule, the inner loop of the simulator.

A device runs its row in order, and every message has one sender and one receiver, so that all times follow from
maxima and sums whose order is fixed beforehand. The loop therefore needs no clock: it lets a device run until it
lacks something, and takes it up again when the device that it waits for has moved. One pass over the actions,
O(actions + waits).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

SMALL = 2_000
"""Actions up to which the loop runs as plain Python: loading the compiler takes longer."""


def player(actions: int) -> Any:
    """Return `play`, compiled if it has so many actions to play that this pays."""
    return play if actions <= SMALL else compiled()


@cache
def compiled() -> Any:
    """Return `play` as compiled by Numba; the code is cached on disk."""
    from numba import njit

    return njit(cache=True)(play)


def play(
    stage: Any,
    microbatch: Any,
    kind: Any,
    offsets: Any,
    home: Any,
    microbatches: Any,
    forward_at: Any,
    backward_at: Any,
    table: Any,
    each: Any,
    hop: Any,
    slot: Any,
    link: Any,
    rendezvous: Any,
    overhead: Any,
    start: Any,
    end: Any,
    sent: Any,
    received: Any,
    posted: Any,
) -> Any:
    """Fill the times of all actions and transfers, as far as the schedule can be played.

    Parameters
    ----------
    stage, microbatch, kind
        The actions row by row, shape (A,); kinds are numbers of `Kind`. Evictions and loads need nothing and send
        nothing.
    offsets
        First action of each row and the end, shape (D + 1,).
    home
        Device of each stage, shape (S,).
    microbatches
        M.
    forward_at, backward_at
        Action that is the forward (whole or input-gradient backward) pass of stage s and micro-batch m, at
        ``s * M + m``; `backward_at` is empty in schedules without backward passes.
    table, each
        Seconds of an action by stage and kind, shape (S, kinds); or, unless empty, of every action, shape (A,).
    hop, slot, link
        By phase (0 forward, 1 backward) and boundary, shape (2, S + 1): seconds of a transfer, row of it in `sent` and
        `received` (-1: nothing is sent), number of the directed link.
    rendezvous
        Whether a sender waits for its receiver.
    overhead
        Seconds that a device spends before each action.
    start, end
        Filled: seconds, shape (A,).
    sent, received
        Filled: begin and end of the transfers, shape (slots, M).
    posted
        Filled with rendezvous: when a device offers the message of an action and asks for that of the next, shape (A,).

    Returns
    -------
    at, lacks : numpy.ndarray
        Per device, the first action that was not played and the action that it waits for (-1 in finished rows).
    """
    devices = len(offsets) - 1
    stages = len(home)
    free = np.zeros(int(link.max()) + 2)
    at = offsets[:-1].copy()
    lacks = np.full(devices, -1, dtype=np.int64)
    # Devices to look at, and per device the list of those that wait for it to move.
    stack = np.arange(devices)[::-1].copy()
    height = devices
    first_waiting = np.full(devices, -1, dtype=np.int64)
    next_waiting = np.full(devices, -1, dtype=np.int64)
    while height > 0:
        height -= 1
        d = stack[height]
        begin = at[d]
        stop = offsets[d + 1]
        lacks[d] = -1
        waits_on = -1
        while at[d] < stop:
            k = at[d]
            s, m, what = stage[k], microbatch[k], kind[k]
            # What the action reads: its producer, and the transfer that brings it (row < 0: it is on this device).
            producer = -1
            row = -1
            phase = 0
            boundary = 0
            if what == 0:
                if s > 0:
                    producer, boundary = forward_at[(s - 1) * microbatches + m], s
            elif what == 3:
                producer = backward_at[s * microbatches + m]
            elif what > 3:
                producer = -1
            elif s < stages - 1:
                producer, boundary, phase = backward_at[(s + 1) * microbatches + m], s + 1, 1
            else:
                producer = forward_at[s * microbatches + m]
            if producer >= 0:
                source = home[stage[producer]]
                if producer >= at[source]:
                    lacks[d], waits_on = producer, source
                    break
                if boundary > 0:
                    row = slot[phase, boundary]
            if rendezvous:
                base = 0.0
                before_done = 0.0
                same = True
                if k > offsets[d]:
                    base = posted[k - 1]
                    s0, m0, what0 = stage[k - 1], microbatch[k - 1], kind[k - 1]
                    same = (what0 == 0) == (what == 0)
                    # The message of the action before is on its way once its receiver asks for it.
                    to = -1
                    out = -1
                    if what0 == 0 and s0 < stages - 1:
                        out, to = slot[0, s0 + 1], s0 + 1
                    elif (what0 == 1 or what0 == 2) and s0 > 0:
                        out, to = slot[1, s0], s0 - 1
                    if out >= 0:
                        taker = (
                            forward_at[to * microbatches + m0] if what0 == 0 else backward_at[to * microbatches + m0]
                        )
                        target = home[to]
                        asked = 0.0
                        if taker > offsets[target]:
                            if taker - 1 >= at[target]:
                                lacks[d], waits_on = taker - 1, target
                                break
                            asked = posted[taker - 1]
                        way = hop[0, s0 + 1] if what0 == 0 else hop[1, s0]
                        sent[out, m0] = max(base, asked)
                        received[out, m0] = sent[out, m0] + way
                        before_done = received[out, m0]
                ready = base
                if row >= 0:
                    sent[row, m] = max(posted[producer], base)
                    received[row, m] = sent[row, m] + hop[phase, boundary]
                    ready = received[row, m]
                elif producer >= 0:
                    ready = max(base, end[producer])
                if not same:
                    ready = max(ready, before_done)
                start[k] = ready + overhead
                end[k] = start[k] + (each[k] if len(each) > 0 else table[s, what])
                posted[k] = max(end[k], before_done)
            else:
                ready = end[k - 1] if k > offsets[d] else 0.0
                if row >= 0:
                    ready = max(ready, received[row, m])
                elif producer >= 0:
                    ready = max(ready, end[producer])
                start[k] = ready + overhead
                end[k] = start[k] + (each[k] if len(each) > 0 else table[s, what])
                out = -1
                way = 0.0
                lane = 0
                if what == 0 and s < stages - 1:
                    out, way, lane = slot[0, s + 1], hop[0, s + 1], link[0, s + 1]
                elif (what == 1 or what == 2) and s > 0:
                    out, way, lane = slot[1, s], hop[1, s], link[1, s]
                if out >= 0:
                    sent[out, m] = max(end[k], free[lane])
                    received[out, m] = sent[out, m] + way
                    free[lane] = received[out, m]
            at[d] = k + 1
        if waits_on >= 0:
            next_waiting[d] = first_waiting[waits_on]
            first_waiting[waits_on] = d
        if at[d] > begin:
            other = first_waiting[d]
            first_waiting[d] = -1
            while other >= 0:
                stack[height] = other
                height += 1
                other = next_waiting[other]
    return at, lacks
