"""What a server had told by a moment of a trace: the frames it wrote to stdout, each with its place in the trace."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from e2e.checks import Frame, strict_frame
from soak.disk import Record


@dataclass(slots=True)
class Told:
    """All that was acknowledged: events by session and seq with cursor and bytes, turns by session."""

    events: dict[str, dict[int, tuple[str, bytes]]] = field(default_factory=dict)
    turns: set[tuple[str, str]] = field(default_factory=set)
    """(session, turn) of the submits that were answered."""
    sessions: set[str] = field(default_factory=set)

    def take(self, frames: Sequence[Frame]) -> None:
        """Add what these frames tell."""
        for frame in frames:
            if frame.event is not None:
                event = frame.event
                self.sessions.add(event["sessionId"])
                known = self.events.setdefault(event["sessionId"], {})
                known[event["seq"]] = (frame.value["params"]["cursor"], frame.event_bytes)
            for response in frame.responses:
                result = response.get("result", {})
                if "session" in result:
                    self.sessions.add(result["session"]["sessionId"])
                if "turn" in result:
                    turn = result["turn"]
                    self.turns.add((turn["sessionId"], turn["turnId"]))


class Telling:
    """The frames of a trace. A frame counts from the record that begins to write its end."""

    def __init__(self, records: Sequence[Record], earlier: Told) -> None:
        self._earlier = earlier
        self._frames: list[Frame] = []
        self._places: list[int] = []
        rest = b""
        for place, record in enumerate(records):
            if record[0] != "tell":
                continue
            # The next record of this thread says how much of it was taken; without one, nobody read it.
            count = next((after[1] for after in records[place + 1 :] if after[0] == "told"), 0)
            *lines, rest = (rest + record[1][:count]).split(b"\n")
            self._frames += [strict_frame(line) for line in lines]
            self._places += [place] * len(lines)

    def before(self, place: int) -> Told:
        """What was told before the record at this place, and earlier."""
        told = deepcopy(self._earlier)
        told.take(self._frames[: bisect_right(self._places, place - 1)])
        return told

    def first(self) -> int:
        """The place of the first frame that tells of a session."""
        for frame, place in zip(self._frames, self._places, strict=True):
            told = Told()
            told.take([frame])
            if told.sessions:
                return place
        raise AssertionError("nothing was told of a session")
