"""A small server that speaks the wire and keeps its log in a directory, so that a restart finds it again.

`python stub.py DIRECTORY [TRAIT…]`. What a turn does stands in its text; see `_run`. Traits bend what it does;
see where they are asked for. It appends the name of every method to `DIRECTORY/calls`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HOME = Path(sys.argv[1])
TRAITS = frozenset(sys.argv[2:])
LOG = HOME / "log"
KEYS = HOME / "keys"
Json = dict[str, Any]


class Refused(Exception):
    def __init__(self, kind: str) -> None:
        self.kind = kind


subscriptions: dict[str, int] = {}
waiting: list[tuple[Any, str]] = []


def send(message: Json) -> None:
    os.write(1, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def notify(method: str, **params: Any) -> None:
    send({"method": method, "params": params})


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def add(path: Path, value: Any) -> None:
    with path.open("a") as file:
        file.write(json.dumps(value) + "\n")


def cursor(seq: int) -> str:
    return f"{seq}.{seq:012x}"


def append(type_: str, turn_id: str | None = None, **data: Any) -> None:
    event: Json = {"sessionId": "s", "seq": len(lines(LOG)) + 1, "time": "2026-01-01T00:00:00.000Z"}
    if turn_id is not None:
        event["turnId"] = turn_id
    add(LOG, {**event, "type": type_, "data": data})


def publish() -> None:
    events = lines(LOG)
    for subscription, seen in subscriptions.items():
        for event in events[seen:]:
            subscriptions[subscription] = event["seq"]
            if "gap" in TRAITS and event["seq"] == 3:
                continue
            for _ in range(2 if "doubles" in TRAITS else 1):
                notify("event", subscriptionId=subscription, cursor=cursor(event["seq"]), event=event, later=1)


def turn(turn_id: str) -> Json:
    ended = any(event["type"] == "turn.completed" and event.get("turnId") == turn_id for event in lines(LOG))
    return {"turnId": turn_id, "sessionId": "s", "status": "completed" if ended else "running"}


def answer_waits() -> None:
    for identifier, turn_id in list(waiting):
        if turn(turn_id)["status"] == "completed":
            waiting.remove((identifier, turn_id))
            send({"id": identifier, "result": {"turn": turn(turn_id), "why": "ended"}})


def _run(turn_id: str, text: str) -> None:
    word, _, number = text.partition(" ")
    append("turn.started", turn_id)
    for index in range(int(number) if number.isdigit() else 0):
        append("message.chunk", turn_id, itemId="i", offset=index, text="x")
    if word != "open":
        append("turn.completed", turn_id, text=text)


def submit(params: Json) -> Json:
    key = params.get("idempotencyKey")
    for known in lines(KEYS):
        if known["key"] == key:
            return {"turn": turn(known["turnId"]), "queue": {"length": 0, "turnIds": []}, "cursor": known["cursor"]}
    turn_id = params.get("turnId") or f"t{len(lines(KEYS)) + 1}"
    text = params["input"][0]["text"]
    if text == "die before":
        os._exit(9)
    append("turn.queued", turn_id, input=params["input"])
    add(KEYS, {"key": key, "turnId": turn_id, "cursor": cursor(len(lines(LOG)))})
    _run(turn_id, text)
    if text == "die after":
        publish()
        os._exit(9)
    return {"turn": turn(turn_id), "queue": {"length": 0, "turnIds": []}, "cursor": cursor(len(lines(LOG)))}


def session() -> Json:
    head = len(lines(LOG))
    closed = any(event["type"] == "session.closed" for event in lines(LOG))
    status = "closed" if closed else "open"
    return {"session": {"sessionId": "s", "status": status}, "snapshot": {}, "cursor": cursor(head)}


def initialize(params: Json) -> Json:
    if "newer" in TRAITS:
        raise Refused("unsupported_protocol")
    return {
        "protocolVersion": "1",
        "serverInfo": {"name": "stub", "starts": lines(HOME / "calls").count("initialize")},
        "capabilities": {},
        "limits": {"frameInBytes": {"default": 4096}},
        "later": True,
    }


def create(params: Json) -> Json:
    if not LOG.exists():
        append("session.created")
    return session()


def close(params: Json) -> Json:
    append("session.closed")
    return session()


def subscribe(params: Json) -> Json:
    after = int(params.get("after", "0.").split(".")[0])
    if after > len(lines(LOG)):
        raise Refused("cursor_ahead")
    identifier = f"sub{len(subscriptions) + 1}"
    subscriptions[identifier] = after
    return {"subscriptionId": identifier, "headCursor": cursor(len(lines(LOG))), "headSeq": len(lines(LOG))}


def unsubscribe(params: Json) -> Json:
    subscriptions.pop(params["subscriptionId"], None)
    return {}


def update(params: Json) -> Json:
    if params["title"] == "die":
        os._exit(9)
    return {**session(), "title": params["title"]}


def echo(params: Json) -> Json:
    return params


METHODS: dict[str, Callable[[Json], Json]] = {
    "initialize": initialize,
    "ping": lambda params: {},
    "capabilities/describe": lambda params: {"schemaVersion": "1.0"},
    "session/create": create,
    "session/resume": lambda params: session(),
    "session/get": lambda params: session(),
    "session/update": update,
    "session/close": close,
    "turn/submit": submit,
    "turn/get": lambda params: {"turn": turn(params["turnId"]), "cursor": cursor(len(lines(LOG)))},
    "events/subscribe": subscribe,
    "events/unsubscribe": unsubscribe,
    "shutdown": lambda params: {},
}


def handle(message: Json) -> None:
    method, params, identifier = message["method"], message.get("params", {}), message.get("id")
    add(HOME / "calls", method)
    if method == "turn/wait":
        waiting.append((identifier, params["turnId"]))
        return
    if identifier is None:
        return
    try:
        result = METHODS.get(method, echo)(params)
    except Refused as refusal:
        data = {"kind": refusal.kind, "retryable": False, "details": {"supported": ["2"]}}
        send({"id": identifier, "error": {"code": -32000, "message": "no", "data": data}})
        return
    send({"id": identifier, "result": result})
    if method == "events/subscribe" and "deltas" in params:
        notify("delta", subscriptionId=result["subscriptionId"], itemId="i", kind="message", offset=0, text="ab")
    if method == "events/subscribe" and "closes" in TRAITS:
        notify("subscription/closed", subscriptionId=result["subscriptionId"], reason="deleted")
        del subscriptions[result["subscriptionId"]]


def main() -> None:
    HOME.mkdir(exist_ok=True)
    if "noise" in TRAITS:
        os.write(1, b"a banner of some wrapper\n[1, 2]\n\n")
        os.write(2, b"noise " * 100_000)
    if "dies" in TRAITS and (HOME / "calls").exists():
        os.write(2, b"out of luck\n")
        os._exit(3)
    for line in sys.stdin.buffer:
        handle(json.loads(line))
        if "unknown" in TRAITS:
            notify("news", text="later")
        publish()
        answer_waits()
    if "deaf" in TRAITS:
        import time

        time.sleep(600)


main()
