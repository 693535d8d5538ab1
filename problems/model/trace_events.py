"""Model room: timelines as trace events (Google's Trace Event Format, complete events ``X`` and counters ``C``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from balance.problems.model.tensors import FloatArray

if TYPE_CHECKING:
    from balance.problems.model.timeline import Timeline

_NAMES = ("forward", "backward", "input gradient", "weight gradient", "evict", "load")
_CARRIES = ("activation", "gradient")


def trace_events(timeline: Timeline, name: str, process: int) -> list[dict[str, Any]]:
    """Return the events of a timeline; see `Timeline.to_chrome_trace`."""
    events: list[dict[str, Any]] = [_meta("process_name", process, 0, name=name)]
    for d in range(timeline.n_devices):
        events += [
            _meta("thread_name", process, d, name=f"device {d}"),
            _meta("thread_sort_index", process, d, sort_index=d),
        ]
        part = timeline.span(d)
        times = _microseconds(timeline.start[part], timeline.end[part])
        for (action, _, _), (begin, length) in zip(timeline.actions(d), times, strict=True):
            events.append(
                {
                    "ph": "X",
                    "name": str(action),
                    "cat": _NAMES[action.kind],
                    "pid": process,
                    "tid": d,
                    "ts": begin,
                    "dur": length,
                    "args": {"stage": action.stage, "microbatch": action.microbatch},
                }
            )
        if timeline.footprint is not None and part.stop > part.start:
            moments, held = timeline.memory(d)
            stays = np.append(moments[1:] > moments[:-1], True)
            for moment, amount in zip(moments[stays].tolist(), held[stays].tolist(), strict=True):
                events.append(
                    {
                        "ph": "C",
                        "name": f"memory of device {d}",
                        "pid": process,
                        "ts": round(moment * 1e9) / 1e3,
                        "args": {"bytes": amount},
                    }
                )
    return events + _transfer_events(timeline, process)


def _transfer_events(timeline: Timeline, process: int) -> list[dict[str, Any]]:
    transfers = timeline.transfers
    events: list[dict[str, Any]] = []
    tracks: dict[tuple[int, int], int] = {}
    for flow in range(len(transfers.flow_source)):
        way = (int(transfers.flow_source[flow]), int(transfers.flow_target[flow]))
        if way not in tracks:
            tracks[way] = timeline.n_devices + len(tracks)
            label = f"link {way[0]} to {way[1]}"
            events.append(_meta("thread_name", process, tracks[way], name=label))
            events.append(_meta("thread_sort_index", process, tracks[way], sort_index=tracks[way]))
        times = _microseconds(transfers.begin[flow], transfers.finish[flow])
        for m, (begin, length) in enumerate(times):
            carries = _CARRIES[int(transfers.flow_kind[flow])]
            events.append(
                {
                    "ph": "X",
                    "name": f"{carries} {m}",
                    "cat": carries,
                    "pid": process,
                    "tid": tracks[way],
                    "ts": begin,
                    "dur": length,
                    "args": {
                        "stages": f"{int(transfers.flow_from[flow])} to {int(transfers.flow_to[flow])}",
                        "microbatch": m,
                        "bytes": float(transfers.flow_bytes[flow]),
                    },
                }
            )
    return events


def _meta(event: str, process: int, track: int, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "name": event, "pid": process, "tid": track, "args": args}


def _microseconds(start: FloatArray, end: FloatArray) -> list[tuple[float, float]]:
    # Whole nanoseconds, so that an action that follows another at once does not begin before its end by rounding.
    begin = np.rint(start * 1e9)
    length = np.rint(end * 1e9) - begin
    return list(zip((begin / 1e3).tolist(), (length / 1e3).tolist(), strict=True))
