"""Plays a transcript of `protocol/transcripts/` to a server, and compares what it sends with what stands there.

A line is one of `{"note": …}`, `{"client": frame}`, `{"server": frame}`, `{"until": event type}` (the client reads
until then) and `{"do": "start" | "kill -9" | "end of input"}`. The values of a recorded run differ from those of the
next one (times, ids that the server chose, cursors): what a frame of the server holds at such a member is learnt, put
into later frames of the client, and not compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from e2e.checks import Frame
from e2e.driver import Server

Line = dict[str, Any]

WORKSPACE = "/home/user/project"
"""Stands in transcripts for the directory that the run was made in."""

SETTLING = ("turn/wait", "session/close")
"""Methods whose answer comes behind every event that it speaks of, so that it is sure what came before."""

_VARIES = re.compile(
    r"(.*[cC]ursor|.*At|at|time|since|.*Digest|digest|inode|device|pid|host|principal|durationMs|sinceMs|"
    r"subscriptionId|itemId|callId|providerCallId|modelRequestId|steerId|messages|path|version|client)"
)
_HOST = (
    (re.compile(r"Today is \d{4}-\d\d-\d\d"), "Today is 2026-01-31"),
    (re.compile(r"The operating system is [^.]*"), "The operating system is Linux (x86_64)"),
    (re.compile(r'"limits\.(pids|memory|files)": "(yes|partial|no)"'), r'"limits.\1": "partial"'),
    (re.compile(r'"limits\.cpu", ("limits\.files", )?"limits\.memory"'), '"limits.cpu", "limits.memory"'),
)
"""What the model is told of the day and the machine, what the machine keeps, and what stands in transcripts for it."""
_IDS = re.compile(r"(itemIds|steerIds|openCalls|undelivered)")


def read(path: Path) -> list[Line]:
    """The lines of a transcript."""
    return [json.loads(text) for text in path.read_text(encoding="utf-8").split("\n") if text]


def write(path: Path, lines: list[Line]) -> None:
    """Keep a transcript: a frame a line, as it crossed the wire."""
    text = "".join(json.dumps(line, ensure_ascii=False, separators=(", ", ": ")) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")


class Player:
    """Plays the client's part to servers that `start` makes in `workspace`; `recorded` holds all lines as they came."""

    def __init__(self, start: Callable[[], Server] | None, workspace: Path) -> None:
        self.recorded: list[Line] = []
        self.differences: list[str] = []
        self._start = start
        self._server: Server | None = None
        self._learnt: dict[str, str] = {WORKSPACE: str(workspace)}
        self.workspace = str(workspace)
        self._taken = 0
        self._last: dict[str, str] = {}

    @property
    def server(self) -> Server:
        assert self._server is not None, "a transcript begins with a start"
        return self._server

    def play(self, lines: list[Line]) -> None:
        """Do what the client does, block by block, and look at what the server sent in between."""
        for line, expected in steps(lines):
            sent = [self._take_out(frame) for frame in self._act(line)]
            self.recorded += [{"server": frame} for frame in sent]
            if any("server" in other for other in lines):
                self.compare(expected, sent)

    def _act(self, line: Line) -> list[Any]:
        """Do one line; what the server sent that belongs to it."""
        if "client" in line:
            frame = self.put_in(line["client"])
            self.recorded.append({"client": self._take_out(frame)})
            return self._exchange(frame)
        self.recorded.append(line)
        match line:
            case {"do": "start"}:
                assert self._start is not None
                self._server = self._start()
                self._taken = 0
            case {"do": "kill -9"}:
                self.server.kill()
            case {"do": "end of input"}:
                assert self.server.stop() == 0
                return self._notifications(len(self.server.frames))
            case {"until": str(type_)}:
                return self._notifications(self.server.wait_for(_is_event(type_), start=self._taken).index + 1)
            case {"do": str(touch)} if touch.startswith("touch "):
                Path(self.workspace, touch.removeprefix("touch ")).touch()
        return []

    def _exchange(self, frame: Any) -> list[Any]:
        """Send, and wait for the answer. Events belong to the `turn/wait` or `until` that they come before."""
        server = self.server
        if isinstance(frame, str):
            server.write(frame.encode() + b"\n")
            return [server.wait_for(lambda one: one.value.get("id", 0) is None, start=self._taken).value]
        server.expect(frame["id"], frame["method"])
        server.write(json.dumps(frame).encode() + b"\n")
        answer = server.answer_frame(frame["id"])
        before = self._notifications(answer.index) if frame["method"] in SETTLING else []
        self._remember(answer.value.get("result", {}))
        return [*before, answer.value]

    def put_in(self, value: Any) -> Any:
        """A frame of the client with what was learnt in this run."""
        match value:
            case dict():
                return {key: self.put_in(member) for key, member in value.items()}
            case list():
                return [self.put_in(member) for member in value]
            case str():
                return self._learnt.get(value, self._last.get(value, value))
            case _:
                return value

    def _notifications(self, end: int) -> list[Any]:
        """What came before frame `end` and was not asked for; deltas of an item made one."""
        frames = [frame.value for frame in self.server.frames[self._taken : end]]
        self._taken = end
        deltas: dict[str, Any] = {}
        told: list[Any] = []
        for frame in frames:
            params = frame.get("params", {})
            if frame.get("method") == "delta" and params["itemId"] in deltas:
                deltas[params["itemId"]]["params"]["text"] += params["text"]
            elif frame.get("method") in ("event", "delta", "subscription/closed"):
                if frame["method"] == "delta":
                    deltas[params["itemId"]] = frame
                told.append(frame)
                self._remember(params)
        return told

    def learn(self, recorded: str, now: str | None) -> None:
        """A value of the recorded run is this one in the present run."""
        if now is not None:
            self._learnt[recorded] = now

    def _remember(self, place: dict[str, Any]) -> None:
        if "cursor" in place:
            self._last["@cursor"] = place["cursor"]

    def _take_out(self, value: Any) -> Any:
        text = json.dumps(value).replace(self.workspace, WORKSPACE)
        for found, instead in _HOST:
            text = found.sub(instead, text)
        return json.loads(text)

    def compare(self, expected: list[Any], sent: list[Any]) -> None:
        """Note what differs, and learn what may."""
        sent = [self._take_out(frame) for frame in sent]
        # Deltas may be dropped, and are: a subscription that is not caught up gets none.
        expected = [frame for frame in expected if frame.get("method") != "delta"]
        sent = [frame for frame in sent if frame.get("method") != "delta"]
        if len(expected) != len(sent):
            kinds = [[_kind(frame) for frame in frames] for frames in (expected, sent)]
            self.differences.append(f"expected {kinds[0]}, got {kinds[1]}")
        for wanted, got in zip(expected, sent, strict=False):
            for difference in self._differ(wanted, got, _kind(wanted)):
                self.differences.append(difference)

    def _differ(self, wanted: Any, got: Any, where: str) -> Iterator[str]:
        if isinstance(wanted, dict) and isinstance(got, dict):
            if wanted.keys() != got.keys():
                yield f"{where}: members {sorted(wanted)} became {sorted(got)}"
            for key in wanted.keys() & got.keys():
                yield from self._member(key, wanted[key], got[key], f"{where}.{key}")
        elif isinstance(wanted, list) and isinstance(got, list) and len(wanted) == len(got):
            for place, (one, other) in enumerate(zip(wanted, got, strict=True)):
                yield from self._differ(one, other, f"{where}[{place}]")
        elif wanted != got:
            yield f"{where}: {wanted!r:.200} became {got!r:.200}"

    def _member(self, key: str, wanted: Any, got: Any, where: str) -> Iterator[str]:
        if key in ("sizeBytes", "sha256") and where.startswith("event context.composed"):
            return  # of the text beside it, in which the day and the directory are others
        if _IDS.fullmatch(key) and len(wanted) == len(got):
            self._learnt.update(zip(wanted, got, strict=True))
        elif _VARIES.fullmatch(key) and isinstance(wanted, type(got)) and not isinstance(got, dict | list):
            self._learnt |= {wanted: got} if wanted != got else {}
        else:
            yield from self._differ(wanted, got, where)


def steps(lines: list[Line]) -> Iterator[tuple[Line, list[Any]]]:
    """Each line of the client with the server's that follow it."""
    line: Line | None = None
    expected: list[Any] = []
    for one in lines:
        if "server" in one:
            expected.append(one["server"])
            continue
        if line is not None:
            yield line, expected
        line, expected = one, []
    if line is not None:
        yield line, expected


def _is_event(type_: str) -> Callable[[Frame], bool]:
    return lambda frame: frame.event is not None and frame.event["type"] == type_


def _kind(frame: Any) -> str:
    if "id" in frame:
        return f"answer {frame['id']}"
    params = frame["params"]
    return f"event {params['event']['type']}" if frame["method"] == "event" else str(frame["method"])
