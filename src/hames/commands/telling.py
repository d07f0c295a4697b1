"""Events of a session told to a person: the lines of `hames replay`, and the notes of `hames run`. Pure.

A type that is not in the table is not told: it is bookkeeping, or newer than this build; `--jsonl` has them all.
Texts are as they are in the log; who prints them makes them visible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hames.commands.visible import one_line

Data = Mapping[str, Any]


def told(event: Mapping[str, Any], *, tool_output: bool = False) -> str | None:
    """What to show of an event, without a line feed at its end; None where there is nothing.

    With `tool_output`, a tool's result is told in full, else only when it is not `ok`.
    """
    if event["type"] == "tool.completed":
        return _tool_completed(event["data"], whole=tool_output)
    teller = _TELLERS.get(event["type"])
    return None if teller is None else teller(event["data"])


def _session_created(data: Data) -> str:
    snapshot = data["snapshot"]
    title = f" “{data['title']}”" if "title" in data else ""
    return f"session{title} in {snapshot['workspace']['path']}, model {model_name(snapshot['model'])}"


def model_name(route: Data) -> str:
    """A model with its provider."""
    return route["model"] if route["model"] == route["provider"] else f"{route['provider']}/{route['model']}"


def _input(data: Data) -> str:
    text = "\n".join(_slot(slot) for slot in data["input"])
    return "> " + text.rstrip("\n").replace("\n", "\n> ")


def _slot(slot: Data) -> str:
    if slot["type"] == "text":
        return str(slot["text"])
    name = f" {one_line(slot['label'])}" if "label" in slot else ""
    return f"[image{name}: {slot['mediaType']}, {slot['data']['sizeBytes']} bytes]"


def _started(data: Data) -> str | None:
    previous = data.get("previous")
    if previous is None:
        return None
    return f"[attempt {data['attempt']}: the one before ended with {previous['reason']}]"


def _message(data: Data) -> str:
    if data["inContext"]:
        return str(data["text"])
    return f"{data['text']}\n[the text above does not count: {data.get('cause', 'withdrawn')}]"


def _tool_started(data: Data) -> str:
    return f"+ {data['summary']}" if data["effect"] == "execute" else f"* {data['summary']}"


def _tool_completed(data: Data, *, whole: bool) -> str | None:
    outcome = data["outcome"]
    code = data["details"].get("exitCode", 0)
    if whole:
        says_so = outcome == "ok" or (outcome == "error" and str(data["text"]).startswith("Error ("))
        head = "" if says_so else f"[{outcome}] "
        return _within(head + str(data["text"]))
    if outcome == "ok":
        return f"  exit code {code}" if code else None
    return f"  {data['tool']}: {outcome}{_why(str(data['text']))}"


def _why(text: str) -> str:
    """What the model is told of a call that failed, without the word that says so to the model alone."""
    kind, mark, rest = text.removeprefix("Error ").partition("): ")
    if text.startswith("Error (") and mark:
        return f" {one_line(kind)}): {one_line(rest)}"
    return f": {one_line(text)}"


def _within(text: str) -> str:
    return "  " + text.rstrip("\n").replace("\n", "\n  ")


def _retried(data: Data) -> str:
    why = str(data["error"]["message"]).rstrip(". ")
    return f"[the model request failed: {why}. Again in {data['delayMs']} ms]"


def _failed(data: Data) -> str:
    return f"[failed: {data['error']['message']}] [{data['error']['kind']}]"


def _cancelled(data: Data) -> str:
    reason = f", {data['reason']}" if "reason" in data else ""
    return f"[cancelled: {data['cause']}{reason}]"


def _recovered(data: Data) -> str:
    if "cut" in data:
        cut = data["cut"]
        lost = f"{cut['lost']} events are" if "lost" in cut else "there may have been more, which is"
        return f"[the store was repaired, epoch {cut['epoch']}: {lost} lost after event {cut['lastGoodSeq']}]"
    return f"[recovered after {data['reason']}: {data['action']}]"


def _updated(data: Data) -> str:
    told = [f"title: {data['title']}"] if "title" in data else []
    if "model" in data:
        told.append(f"model: {data['model']['provider']}/{data['model']['model']}")
    return f"[{', '.join(told)}]"


_REPAIRS: Mapping[str, str] = {
    "signed_parts": "parts of {} answers that only another model understands",
    "images": "{} images, which are too many",
    "images_not_taken": "{} images that the model does not take",
    "content_lost": "{} contents that are lost",
}


def _repairs(data: Data) -> str:
    return ", ".join(
        _REPAIRS.get(repair["code"], repair["code"] + " {}").format(repair["count"]) for repair in data["repairs"]
    )


def _replaced(data: Data) -> str:
    how = "a summary stands in their place" if "summary" in data else "without a summary"
    return f"[{data['messagesGone']} earlier messages are not sent any more: {how}]"


_TELLERS: Mapping[str, Callable[[Data], str | None]] = {
    "session.created": _session_created,
    "session.closed": lambda data: "[session closed]",
    "session.resumed": lambda data: "[session opened again]",
    "session.updated": _updated,
    "log.recovered": _recovered,
    "turn.queued": _input,
    "turn.steered": _input,
    "turn.started": _started,
    "queue.held": lambda data: f"[the queue is held: {data['cause']}]",
    "queue.resumed": lambda data: "[the queue goes on]",
    "model.retried": _retried,
    "model.discarded": lambda data: f"[what was shown of an answer does not count: {data['cause']}]",
    "message.completed": _message,
    "tool.started": _tool_started,
    "file.changed": lambda data: f"  {data['kind']} {data['path']}",
    "loop.detected": lambda data: f"[the same calls {data['repeats']} times: the model was told]",
    "resources.changed": lambda data: f"[the model was told of a change: {data.get('path', data.get('kind', ''))}]",
    "context.replaced": _replaced,
    "context.kept": lambda data: f"[the context was to be made shorter and was not: {data['reason']}]",
    "context.warning": lambda data: f"[the conversation takes {data['percent']} % of the model's window]",
    "context.repaired": lambda data: f"[not sent as it was said: {_repairs(data)}]",
    "warning": lambda data: f"[warning: {data['message']}]",
    "turn.completed": lambda data: "[completed]",
    "turn.failed": _failed,
    "turn.cancelled": _cancelled,
}
