"""Oracle of the simulator: devices and links as processes that react to events, without a thought for speed."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from typing import Any


@dataclass
class Message:
    """One message: offered by the sender, asked for by the receiver, on its way, arrived."""

    offered: bool = False
    asked: bool = False
    done: bool = False
    begin: float = 0.0
    end: float = 0.0


@dataclass
class Device:
    """One device: its row, and what it is doing."""

    row: list[str]
    at: int = 0
    state: str = "ready"
    pending: tuple[str, int] | None = None
    outbox: deque[Any] = field(default_factory=deque)


def parts(action: str) -> tuple[int, str, int]:
    """Return stage, letter and micro-batch of a written action."""
    letter = next(c for c in action if c.isalpha())
    stage, microbatch = action.split(letter)
    return int(stage), letter, int(microbatch)


class Loop:
    """Plays written rows.

    `seconds` gives the length of an action, `hop` the length of the transfer from one stage to another or None if
    nothing goes over a link there. Results: `times` of actions and `messages` by (phase, receiving stage, micro-batch).
    """

    def __init__(self, rows, seconds, hop, *, rendezvous=False, overhead=0.0) -> None:
        self.devices = [Device(list(row)) for row in rows]
        self.home = {parts(a)[0]: d for d, row in enumerate(rows) for a in row}
        self.last = max(self.home)
        self.seconds, self.hop, self.overhead, self.rendezvous = seconds, hop, overhead, rendezvous
        self.times: dict[str, tuple[float, float]] = {}
        self.done: set[str] = set()
        self.messages: dict[tuple[str, int, int], Message] = {}
        self.links: dict[tuple[int, int], deque[Any]] = {}
        self.busy_links: set[tuple[int, int]] = set()
        self.events: list[Any] = []
        self.order = count()
        self.now = 0.0

    def later(self, delay, what, *args) -> None:
        """Call `what` after `delay`."""
        heapq.heappush(self.events, (self.now + delay, next(self.order), what, args))

    def run(self) -> bool:
        """Play to the end; return whether every device finished its row."""
        self.react()
        while self.events:
            self.now, _, what, args = heapq.heappop(self.events)
            what(*args)
            self.react()
        return all(d.state == "finished" for d in self.devices)

    # -- what an action needs and gives ------------------------------------------------------------------------

    def needs(self, action):
        """Return ("message", key), ("action", name) or None."""
        stage, letter, m = parts(action)
        if letter == "F":
            return None if stage == 0 else self.source("F", stage - 1, stage, m)
        if letter == "W":
            return ("action", f"{stage}I{m}")
        if stage == self.last:
            return ("action", f"{stage}F{m}")
        return self.source("B", stage + 1, stage, m)

    def source(self, phase, giver, taker, m):
        """Return how a result gets from one stage to the next."""
        if self.hop(phase, giver, taker) is None:
            return ("action", f"{giver}F{m}" if phase == "F" else f"{giver}b{m}")
        return ("message", (phase, taker, m))

    def gives(self, action):
        """Return the message that an action makes, or None."""
        stage, letter, m = parts(action)
        if letter == "F" and stage < self.last and self.hop("F", stage, stage + 1) is not None:
            return ("F", stage + 1, m)
        if letter in "BI" and stage > 0 and self.hop("B", stage, stage - 1) is not None:
            return ("B", stage - 1, m)
        return None

    def message(self, key) -> Message:
        """Return a message, made when first spoken of."""
        return self.messages.setdefault(key, Message())

    def has(self, need) -> bool:
        """Whether what is needed is there."""
        if need is None:
            return True
        kind, key = need
        return self.message(key).done if kind == "message" else key in self.done

    # -- processes ---------------------------------------------------------------------------------------------

    def react(self) -> None:
        """Let everything that can go on go on, until nothing changes."""
        moved = True
        while moved:
            moved = False
            for device in self.devices:
                moved |= self.step_device(device)
            for way in list(self.links):
                moved |= self.step_link(way)

    def step_device(self, device) -> bool:
        """Go on with one device; return whether something changed."""
        if device.state == "ready":  # the action before is over, and with rendezvous its message is offered
            if device.at == len(device.row):
                device.state = "finished"
                return True
            need = self.needs(device.row[device.at])
            if need is not None and need[0] == "message":
                self.message(need[1]).asked = True
            device.state = "waiting"
            return True
        if device.state == "waiting":
            action = device.row[device.at]
            if not self.has(self.needs(action)):
                return False
            if self.rendezvous and device.at and device.pending is not None:
                before = device.row[device.at - 1]
                turned = (parts(before)[1] == "F") != (parts(action)[1] == "F")
                if turned and device.pending == self.gives(before) and not self.message(device.pending).done:
                    return False
            device.state = "running"
            self.later(self.overhead, self.begin, device)
            return True
        if device.state == "sending":  # over, but an earlier message of this device is still on its way
            if device.pending is not None and not self.message(device.pending).done:
                return False
            device.pending = self.gives(device.row[device.at - 1])
            if device.pending is not None:
                self.offer(device.pending)
            device.state = "ready"
            return True
        return False

    def begin(self, device) -> None:
        """Start the computation of an action."""
        action = device.row[device.at]
        self.later(self.seconds(action), self.end, device, self.now)

    def end(self, device, begin) -> None:
        """End an action."""
        action = device.row[device.at]
        self.times[action] = (begin, self.now)
        self.done.add(action)
        stage, letter, m = parts(action)
        if letter in "BI":
            self.done.add(f"{stage}b{m}")
        device.at += 1
        if self.rendezvous:
            device.state = "sending"
        else:
            given = self.gives(action)
            if given is not None:
                self.offer(given)
            device.state = "ready"

    def offer(self, key) -> None:
        """Hand a message to its link."""
        phase, taker, _ = key
        giver = taker - 1 if phase == "F" else taker + 1
        self.message(key).offered = True
        self.links.setdefault((self.home[giver], self.home[taker]), deque()).append((key, giver, taker))

    def step_link(self, way) -> bool:
        """Start the first transfer in the queue of a link, if it may."""
        queue = self.links[way]
        if way in self.busy_links or not queue:
            return False
        key, giver, taker = queue[0]
        message = self.message(key)
        if self.rendezvous and not message.asked:
            return False
        queue.popleft()
        self.busy_links.add(way)
        message.begin = self.now
        self.later(self.hop(key[0], giver, taker), self.arrive, way, message)
        return True

    def arrive(self, way, message) -> None:
        """End a transfer."""
        message.done, message.end = True, self.now
        self.busy_links.discard(way)
