"""The examples of the documentation: what was sent and answered in a run, kept by method, event type and error kind.

They stand in `protocol/examples/`, a record a line, and `make gen` shows them in the pages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from docs.normal import Normal
from e2e.driver import Server
from hames.protocol.errors import KINDS
from hames.protocol.events import EVENTS
from hames.protocol.methods import METHODS, NOTIFICATIONS

EXAMPLES = Path(__file__).resolve().parents[2] / "protocol" / "examples"

Record = dict[str, Any]

CODES = ("-32700", "-32600", "-32601", "-32602", "-32800")

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "methods": tuple(METHODS),
    "notifications": tuple(NOTIFICATIONS),
    "events": tuple(EVENTS),
    "codes": CODES,
    "kinds": tuple(KINDS),
}
"""Each file with the names it has examples for, in this order."""


class Book:
    """Collects records by family and name; the first of a name stays."""

    def __init__(self) -> None:
        self.records: dict[str, dict[str, Record]] = {family: {} for family in FAMILIES}
        self.known: dict[str, str] = {}
        """Texts of this run and what stands for them: see `Normal`."""

    def call(self, server: Server, method: str, /, **params: Any) -> Any:
        """Send a request, keep it with its answer as the example of its method; the result."""
        identifier = server.send(method, **params)
        answer = server.answer(identifier)
        assert "result" in answer, answer
        self._keep("methods", method, request=_request(method, params), answer=answer)
        return answer["result"]

    def refused(self, server: Server, kind: str, note: str, method: str, /, **params: Any) -> None:
        """Send a request that is refused with this kind, and keep both."""
        answer = server.answer(server.send(method, **params))
        assert answer["error"]["data"]["kind"] == kind, answer
        self._keep("kinds", kind, note=note, request=_request(method, params), answer=answer)

    def wrong(self, server: Server, line: str, code: int) -> None:
        """Write a line that is answered with a standard code, and keep both."""
        start = len(server.frames)
        server.write(line.encode() + b"\n")
        frame = server.wait_for(lambda one: "error" in one.value, start=start).value
        assert frame["error"]["code"] == code, frame
        self._keep("codes", str(code), sent=line, answer=frame)

    def cancelled(self, server: Server, request: Record) -> None:
        """Send a request that waits, end it with `$/cancelRequest`, and keep both."""
        ending = {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": request["id"]}}
        lines = [json.dumps(request), json.dumps(ending)]
        server.expect(request["id"], request["method"])
        server.write("".join(f"{line}\n" for line in lines).encode())
        answer = server.answer(request["id"])
        assert answer["error"]["code"] == -32800, answer
        self._keep("codes", "-32800", sent="\n".join(lines), answer=answer)

    def frame_refused(self, kind: str, note: str, answer: Record) -> None:
        """Keep the answer to a frame that was no request yet."""
        assert answer["error"]["data"]["kind"] == kind, answer
        self._keep("kinds", kind, note=note, answer=answer)

    def outcome(self, server: Server, kind: str, note: str, session_id: str, turn_id: str) -> None:
        """Keep the error that a turn ended with."""
        turn = server.call("turn/get", sessionId=session_id, turnId=turn_id)["turn"]
        assert turn["outcome"]["error"]["kind"] == kind, turn
        self._keep("kinds", kind, note=note, error=turn["outcome"]["error"])

    def failed(self, server: Server, kind: str, note: str, session_id: str) -> None:
        """Keep the terminal of the session's last turn, which failed with this kind."""
        entry = [one for one in server.log(session_id) if one["event"]["type"] == "turn.failed"][-1]
        assert entry["event"]["data"]["error"]["kind"] == kind, entry
        self._keep("kinds", kind, note=note, error=entry["event"]["data"]["error"])

    def told(self, kind: str, note: str) -> None:
        """A kind that no client can bring about."""
        self._keep("kinds", kind, note=note)

    def events(self, server: Server, session_id: str, *types: str) -> None:
        """Keep the events of a session as examples of their types: of all of them, or of these."""
        for entry in server.log(session_id):
            if not types or entry["event"]["type"] in types:
                self._keep("events", entry["event"]["type"], entry=entry)

    def notification(self, server: Server, method: str, fits: Callable[[Any], bool] = lambda _params: True) -> None:
        """Wait for a notification and keep it."""
        frame = server.wait_for(
            lambda one: one.value.get("method") == method and fits(one.value["params"]), what=method
        )
        self._keep("notifications", method, frame=frame.value)

    def _keep(self, family: str, name: str, **record: Any) -> None:
        self.records[family].setdefault(name, record)

    def missing(self) -> dict[str, list[str]]:
        """Names without an example, by family."""
        return {
            family: left
            for family, names in FAMILIES.items()
            if (left := [name for name in names if name not in self.records[family]])
        }

    def normal(self) -> dict[str, list[Record]]:
        """Every family's records as they are written down: in the order of the tables, with the values of no run."""
        normal = Normal(self.known)
        return {
            family: [
                {"name": name, **_numbered(normal.plain(self.records[family][name]), number)}
                for number, name in enumerate(names, 1)
                if name in self.records[family]
            ]
            for family, names in FAMILIES.items()
        }


def _request(method: str, params: Record) -> Record:
    return {"jsonrpc": "2.0", "id": 0, "method": method, "params": params}


def _numbered(record: Record, number: int) -> Record:
    """With `number` for the id of a request and of its answer."""
    if "request" in record:
        record["request"]["id"] = record["answer"]["id"] = number
    return record


def write(records: Mapping[str, list[Record]]) -> None:
    """Keep all examples."""
    EXAMPLES.mkdir(exist_ok=True)
    for family, lines in records.items():
        text = "".join(json.dumps(line, ensure_ascii=False, separators=(", ", ": ")) + "\n" for line in lines)
        (EXAMPLES / f"{family}.jsonl").write_text(text, encoding="utf-8")


def read() -> dict[str, list[Record]]:
    """All examples as they are kept."""
    return {
        family: [
            json.loads(line) for line in (EXAMPLES / f"{family}.jsonl").read_text(encoding="utf-8").split("\n") if line
        ]
        for family in FAMILIES
    }


def named(records: Mapping[str, list[Record]]) -> dict[str, dict[str, Record]]:
    """The records of each family by their names."""
    return {family: {record["name"]: record for record in lines} for family, lines in records.items()}


def differences(kept: Any, got: Any, where: str = "") -> list[str]:
    """Where two values differ, each place with both."""
    if isinstance(kept, dict) and isinstance(got, dict) and kept.keys() == got.keys():
        return [found for key in kept for found in differences(kept[key], got[key], f"{where}.{key}")]
    if isinstance(kept, list) and isinstance(got, list) and len(kept) == len(got):
        pairs = enumerate(zip(kept, got, strict=True))
        return [found for place, pair in pairs for found in differences(*pair, f"{where}[{place}]")]
    return [] if kept == got else [f"{where}: kept {kept!r:.200}, got {got!r:.200}"]
