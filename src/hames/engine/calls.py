"""A step's tool calls: checked, recorded before their effect, run together, each with exactly one result.

Rule 1: `tool.started` is durable before anything happens. Rule 2: calls that share a lock key run one after the
other in dispatch order; the others run at once. Rule 3: what the model can mend goes back to it typed; a fault
of ours ends the turn (AH-TOOL-6). Rule 4: on cancel every open call gets a result before the turn's terminal;
a call that does not react in bounds is abandoned, and what it says later is dropped.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from hames.core.commands import Draft
from hames.core.conversation import ToolCall
from hames.core.plan import RunTools
from hames.engine.arguments import check_arguments
from hames.engine.attempt import Attempt
from hames.engine.beside import beside
from hames.engine.kept import told
from hames.engine.live import LiveItem
from hames.ports import Artifact, Tool, ToolContext, ToolImage, ToolOutcome
from hames.protocol.errors import HamesError, HarnessFault, ToolFailed
from hames.protocol.jsontext import clean_text

ERROR_MARK = "Error ("
"""How the result of a call that failed begins, and no other does: not every provider has a place for that."""

LARGE_ARGUMENTS = 4 * 1024
"""Characters of arguments that are looked at in a thread: a tool may have to understand all of them, to know the files
that they name, and everybody else would wait for that."""

SLACK_S = 1.0
"""Beyond a tool's own bounds (grace and reaping), until it is taken for deaf and abandoned."""


@dataclass(slots=True)
class _Running:
    """A call that passed its checks."""

    call: ToolCall
    tool: Tool
    arguments: Mapping[str, Any]
    context: ToolContext
    output: _Output
    after: tuple[anyio.Event, ...]
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    done: anyio.Event = field(default_factory=anyio.Event)
    started_at: float = 0.0
    outcome: ToolOutcome | ToolFailed | HarnessFault | None = None
    kept: Artifact | None = None
    recorded: bool = False


@dataclass(frozen=True, slots=True)
class _Sound:
    """A call that may be run: `keys` are those of its locks."""

    tool: Tool
    arguments: Mapping[str, Any]
    context: ToolContext
    output: _Output
    keys: tuple[str, ...]
    summary: str


async def run_calls(attempt: Attempt, step: RunTools, tasks: TaskGroup) -> None:
    """Run them to their results. `tasks` outlives the turn: an abandoned call ends there.

    Raises:
        HarnessFault: a tool failed in a way the model cannot mend; every other call has its result by then.
    """
    for call in step.cut:
        limit = attempt.bounds.tool_calls
        error = {"kind": "limit_exceeded", "limit": "toolCalls", "configured": limit}
        text = f"Not run: the limit of {limit} tool calls in a turn is reached."
        attempt.record(_completed(call, "not_run", text, error=error))
    running = await _prepare(attempt, step.calls)
    await attempt.flush()
    for one in running:
        tasks.start_soon(_run, one, attempt)
    try:
        attempt.live.enter("tools")
        for one in running:
            await one.done.wait()
            _record(attempt, one)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await _stop(attempt, running)
        raise
    await attempt.flush()
    for one in running:
        if isinstance(one.outcome, HarnessFault):
            raise one.outcome


async def _prepare(attempt: Attempt, calls: tuple[ToolCall, ...]) -> list[_Running]:
    """Check each call; record the start of those that are sound, and the failure of the others."""
    tools = {tool.spec.name: tool for tool in attempt.equipment.tools}
    looked = [await _look(attempt, call, tools) for call in calls]
    running: list[_Running] = []
    last: dict[str, _Running] = {}
    for call, seen in zip(calls, looked, strict=True):
        if isinstance(seen, ToolFailed):
            attempt.record(_failed(call, seen))
            continue
        after = tuple(last[key].done for key in seen.keys if key in last)
        one = _Running(call, seen.tool, seen.arguments, seen.context, seen.output, after)
        last.update(dict.fromkeys(seen.keys, one))
        running.append(one)
        attempt.record(
            Draft(
                "tool.started",
                {
                    "callId": call.call_id,
                    "tool": call.tool,
                    "effect": seen.tool.effect,
                    "summary": seen.summary,
                    "grant": "session.tools",
                    "disposition": "allowed",
                },
            )
        )
    return running


async def _look(attempt: Attempt, call: ToolCall, tools: Mapping[str, Tool]) -> _Sound | ToolFailed:
    """What the call is about, or why it cannot be run."""
    tool = tools.get(call.tool)
    if tool is None:
        known = ", ".join(sorted(tools))
        return ToolFailed("unknown_tool", f"There is no tool of this name; there are: {known or 'none'}.")
    output = _Output(attempt, call)
    context = ToolContext(
        attempt.session_id,
        attempt.turn_id,
        call.call_id,
        attempt.equipment.sandbox,
        attempt.limits,
        output.add,
        attempt.spool,
        attempt.open_kept,
        attempt.background(call.call_id),
    )
    if len(call.arguments) < LARGE_ARGUMENTS:
        return _checked(call, tool, output, context)
    return await anyio.to_thread.run_sync(_checked, call, tool, output, context, abandon_on_cancel=True)


def _checked(call: ToolCall, tool: Tool, output: _Output, context: ToolContext) -> _Sound | ToolFailed:
    try:
        arguments = check_arguments(tool.spec, call.arguments)
        lock = tool.lock_key(arguments, context)
        summary = clean_text(tool.summary(arguments))[:200]
    except ToolFailed as failed:
        return failed
    return _Sound(tool, arguments, context, output, (lock,) if isinstance(lock, str) else lock or (), summary)


async def _run(one: _Running, attempt: Attempt) -> None:
    """Run one call; its outcome stands in it when `done` is set. Never raises."""
    try:
        with one.scope:
            for before in one.after:
                await before.wait()
            one.started_at = anyio.current_time()
            async with beside(one.output.tick):
                outcome = await one.tool.run(one.arguments, one.context)
            if outcome.kept is not None:
                one.kept = await attempt.keep(outcome.kept, f"{one.call.tool}-{one.call.call_id}.txt")
            one.outcome = outcome
    except (ToolFailed, HarnessFault) as failed:
        one.outcome = failed
    except HamesError as refused:
        one.outcome = HarnessFault(refused.kind, refused.message, boundary="tool", **refused.details)
    except Exception as error:
        # A top border: a defect in a tool ends the turn, typed, and not the server.
        one.outcome = HarnessFault(
            "internal", f"tool {one.call.tool} broke: {type(error).__name__}", boundary="tool", callId=one.call.call_id
        )
    finally:
        one.output.close()
        one.done.set()


async def _stop(attempt: Attempt, running: list[_Running]) -> None:
    """Cancel what runs and wait for it in bounds; record a result for every call."""
    attempt.live.enter("stopping_tools")
    for one in running:
        one.scope.cancel()
    bound_s = (attempt.limits["termGraceMs"] + attempt.limits["reapMs"]) / 1000 + SLACK_S
    with anyio.move_on_after(bound_s):
        for one in running:
            await one.done.wait()
    for one in running:
        one.output.close()
        if not one.recorded:
            _record(attempt, one)


def _record(attempt: Attempt, one: _Running) -> None:
    one.recorded = True
    duration_ms = int((anyio.current_time() - one.started_at) * 1000) if one.started_at else 0
    match one.outcome:
        case ToolOutcome() as outcome:
            failure = outcome.error
            text = _shown(attempt, outcome.text, one.kept)
            draft = _completed(
                one.call,
                "ok" if failure is None else "error",
                text if failure is None else f"{_failure(failure)}\n{text}",
                duration_ms=duration_ms,
                details=dict(outcome.details),
                truncation=None if outcome.truncation is None else dict(outcome.truncation),
                images=outcome.images,
                kept=one.kept,
                error=None if failure is None else _typed(failure),
            )
            attempt.record(draft, *_changes(one.call, outcome))
        case ToolFailed() as failed:
            attempt.record(_failed(one.call, failed, duration_ms))
        case HarnessFault() as fault:
            # The model is told nothing but that it failed; the turn's error holds the rest (AH-TOOL-6).
            error = {"kind": fault.kind, "boundary": fault.boundary or "tool"}
            attempt.may_still_run += fault.details.get("mayStillRun", [])
            attempt.record(
                _completed(one.call, "error", "The tool could not be run.", duration_ms=duration_ms, error=error)
            )
        case None:
            stopped = one.done.is_set()
            if not stopped:
                attempt.may_still_run.append({"callId": one.call.call_id, "tool": one.call.tool})
            outcome_name = "cancelled" if stopped else "unknown"
            text = "Cancelled." if stopped else "Cancelled; it did not confirm, and may still be running."
            attempt.record(_completed(one.call, outcome_name, text, duration_ms=duration_ms))


def _changes(call: ToolCall, outcome: ToolOutcome) -> list[Draft]:
    drafts: list[Draft] = []
    for change in outcome.changes:
        data: dict[str, Any] = {"callId": call.call_id, "path": clean_text(change.path), "kind": change.kind}
        for name, value in (("before", change.before), ("after", change.after), ("diff", change.diff)):
            if value is not None:
                data[name] = clean_text(value)
        drafts.append(Draft("file.changed", data))
    return drafts


def _shown(attempt: Attempt, text: str, kept: Artifact | None) -> str:
    """What the model is shown of a call that succeeded."""
    text = clean_text(text)
    if text.startswith(ERROR_MARK):
        text = f"[The call succeeded, with this:]\n{text}"
    if kept is not None and any(tool.spec.name == "read" for tool in attempt.equipment.tools):
        text += ("" if text.endswith("\n") else "\n") + told(kept)
    return text


def _failed(call: ToolCall, failed: ToolFailed, duration_ms: int = 0) -> Draft:
    return _completed(call, "error", _failure(failed), duration_ms=duration_ms, error=_typed(failed))


def _failure(failed: ToolFailed) -> str:
    return f"{ERROR_MARK}{failed.kind}): {failed.message}"


def _typed(failed: ToolFailed) -> dict[str, Any]:
    return {"kind": failed.kind, "message": clean_text(failed.message), **failed.details}


def _completed(
    call: ToolCall,
    outcome: str,
    text: str,
    *,
    duration_ms: int = 0,
    details: Mapping[str, Any] | None = None,
    truncation: Mapping[str, Any] | None = None,
    error: Mapping[str, Any] | None = None,
    images: tuple[ToolImage, ...] = (),
    kept: Artifact | None = None,
) -> Draft:
    data: dict[str, Any] = {
        "callId": call.call_id,
        "tool": call.tool,
        "outcome": outcome,
        "text": clean_text(text),
        "durationMs": duration_ms,
        "details": details or {},
    }
    if truncation is not None:
        data["truncation"] = truncation
    if error is not None:
        data["error"] = error
    if kept is not None:
        data["artifact"] = {"artifact": kept.artifact, "sizeBytes": kept.size_bytes, "sha256": kept.sha256}
    if images:
        data["images"] = [{"mediaType": image.media_type, "data": image.data, "label": image.label} for image in images]
    return Draft("tool.completed", data)


def close_open(attempt: Attempt, outcome: str, text: str) -> list[Draft]:
    """A result for every call that has none, before a terminal."""
    return [_completed(call, outcome, text) for call in attempt.conversation.progress_open().values()]


class _Output:
    """A running call's live output: deltas as it comes, and at most one durable chunk a second, the newest bytes."""

    def __init__(self, attempt: Attempt, call: ToolCall) -> None:
        self._attempt = attempt
        self._call = call
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._item: LiveItem | None = None
        self._chunked = 0
        self._chunk_at = 0.0
        self._tail = ""
        self._closed = False

    def add(self, data: bytes) -> None:
        """Output of the call; ignored once the call has its result."""
        if self._closed:
            return
        text = self._decoder.decode(data)
        if not text:
            return
        attempt = self._attempt
        if self._item is None:
            self._chunk_at = anyio.current_time()
            self._item = attempt.live.open(self._call.call_id, attempt.turn_id, "toolOutput", attempt.state.seq)
        attempt.live.add(self._item, text)
        self._item.forget()
        self._tail = (self._tail + text)[-attempt.limits["chunkBytes"] :]
        self._chunk_if_due()

    async def tick(self) -> None:
        """Record a chunk of what came and was followed by nothing, for as long as the call runs."""
        while True:
            await anyio.sleep(self._attempt.limits["chunkMs"] / 1000)
            if self._tail and not self._closed:
                # A fact that was not kept is told to who waits for it.
                with suppress(HamesError):
                    self._chunk_if_due()

    def _chunk_if_due(self) -> None:
        now = anyio.current_time()
        if now - self._chunk_at >= self._attempt.limits["chunkMs"] / 1000:
            self._chunk(now)

    def _chunk(self, now: float) -> None:
        assert self._item is not None
        tail = self._tail.encode()[-self._attempt.limits["chunkBytes"] :].decode("utf-8", "ignore")
        offset = self._item.size - len(tail.encode())
        skipped = max(0, offset - self._chunked)
        self._attempt.record(
            Draft(
                "tool.chunk",
                {"callId": self._call.call_id, "offset": offset, "skippedBytes": skipped, "text": tail},
            )
        )
        self._chunked, self._chunk_at, self._tail = self._item.size, now, ""

    def close(self) -> None:
        """No more output counts."""
        self._closed = True
        if self._item is not None:
            self._attempt.live.close(self._item)
