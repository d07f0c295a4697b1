"""One session: every method that names it, with its id filled in.

A request that could be done twice carries an idempotency key, so that it can be sent again after the server died.
"""

from __future__ import annotations

import uuid
from base64 import b64decode
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal, Protocol, TypeVar

import anyio

from hames_client import messages as m
from hames_client.events import Events, OnDelta, Subscriber

Json = dict[str, Any]
Result = TypeVar("Result")
Input = str | Sequence[Mapping[str, Any]]
"""A text, or slots: `{type: "text", text, role?, label?}`, `{type: "image", data, mediaType, label?}` (base64)."""


class Caller(Subscriber, Protocol):
    """What a session needs of the client."""

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> Any: ...

    def follow(self, session_id: str, own: str | None) -> None:
        """Resume this session so after a restart; None for not at all."""
        ...


class Session:
    """Made by `HamesClient.create_session`, `resume_session` and `session`.

    `answer` is the result that it was made from, with `session`, `snapshot` and `cursor`; None from `session`.
    """

    def __init__(
        self, client: Caller, session_id: str, answer: m.SessionResult | m.SessionCreateResult | None = None
    ) -> None:
        self.id = session_id
        self.answer = answer
        self._client = client

    def events(self, *, after: str | None = None, on_delta: OnDelta | None = None) -> Events:
        """Every event after the cursor `after` (None: from the start), now and as they come, over restarts.

        `on_delta` is called with previews of text as it is made; it must not raise or block.
        """
        return Events(self._client, self.id, after=after, on_delta=on_delta)

    async def read_events(
        self,
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int | None = None,
        types: Sequence[str] | None = None,
        wait_ms: int | None = None,
    ) -> m.EventsReadResult:
        """One page: `{events: [{cursor, event}], nextCursor, headCursor, headSeq, hasMore}`."""
        return await self._call(
            m.EventsReadResult, "events/read", after=after, before=before, limit=limit, types=types, waitMs=wait_ms
        )

    async def submit(
        self,
        input: Input,
        *,
        turn_id: str | None = None,
        idempotency_key: str | None = None,
        delivery: Literal["queue", "join", "reject"] | None = None,
        resume_queue: bool | None = None,
        limits: Mapping[str, Any] | None = None,
        instructions: str | None = None,
    ) -> m.TurnSubmitResult:
        """Admit a turn: `{turn, queue, cursor}`. When it answers, the text is on disk."""
        self._client.follow(self.id, "prefer")
        return await self._call(
            m.TurnSubmitResult,
            "turn/submit",
            input=slots(input),
            turnId=turn_id,
            idempotencyKey=idempotency_key or new_key(),
            delivery=delivery,
            resumeQueue=resume_queue,
            limits=limits,
            instructions=instructions,
        )

    async def steer(
        self, input: Input, *, expected_turn_id: str | None = None, idempotency_key: str | None = None
    ) -> m.TurnSteerResult:
        """Say something to the running turn: `{turn, steerId, cursor}`."""
        return await self._call(
            m.TurnSteerResult,
            "turn/steer",
            input=slots(input),
            expectedTurnId=expected_turn_id,
            idempotencyKey=idempotency_key or new_key(),
        )

    async def cancel(
        self,
        turn_id: str,
        *,
        queue: Literal["hold", "continue", "drop"] | None = None,
        reason: str | None = None,
    ) -> m.TurnResult:
        """Stop this turn: `{turn, cursor}`, as soon as the intent is on disk.

        Always by id: without one it would be whatever runs when the server decides, perhaps the turn after.
        """
        return await self._call(m.TurnResult, "turn/cancel", turnId=turn_id, queue=queue, reason=reason)

    async def wait(self, turn_id: str, *, timeout_ms: int | None = None) -> m.TurnWaitResult:
        """Wait until a turn ends: `{turn, why}` with `ended`, `timeout`, `held` or `unowned`."""
        return await self._call(m.TurnWaitResult, "turn/wait", turnId=turn_id, timeoutMs=timeout_ms)

    async def update_turn(
        self, turn_id: str, *, input: Input | None = None, delivery: Literal["queue", "join"] | None = None
    ) -> m.TurnResult:
        """Change a queued turn, never its place."""
        changed = None if input is None else slots(input)
        return await self._call(m.TurnResult, "turn/update", turnId=turn_id, input=changed, delivery=delivery)

    async def get_turn(self, turn_id: str) -> m.TurnResult:
        """A turn as it stands."""
        return await self._call(m.TurnResult, "turn/get", turnId=turn_id)

    async def list_turns(
        self, *, status: str | None = None, before: int | None = None, limit: int | None = None
    ) -> m.TurnListResult:
        """A page of turns, newest first."""
        return await self._call(m.TurnListResult, "turn/list", status=status, before=before, limit=limit)

    async def compact(self) -> m.SessionCompactResult:
        """Have the context made shorter with the next model request."""
        return await self._call(m.SessionCompactResult, "session/compact")

    async def resume_queue(self) -> m.QueueResult:
        """Let a held queue go on."""
        self._client.follow(self.id, "prefer")
        return await self._call(m.QueueResult, "queue/resume")

    async def get(
        self, *, view: bool | None = None, before: str | None = None, limit: int | None = None
    ) -> m.SessionResult:
        """The session as it stands; with `view` the newest items of its conversation, before the cursor
        `before`: that of the first item of the page before."""
        return await self._call(m.SessionResult, "session/get", view=view, before=before, limit=limit)

    async def rename(self, title: str) -> m.SessionUpdateResult:
        """Change the title."""
        return await self._call(m.SessionUpdateResult, "session/update", title=title)

    async def use_model(self, model: str) -> m.SessionUpdateResult:
        """Change the model of turns that start from now on."""
        return await self._call(m.SessionUpdateResult, "session/update", model=model)

    async def usage(self, turn_id: str | None = None) -> m.UsageResult:
        """Usage of the session, or of one turn, as reported."""
        return await self._call(m.UsageResult, "usage/get", turnId=turn_id)

    async def list_artifacts(self, *, after: str | None = None, limit: int | None = None) -> m.ArtifactListResult:
        """A page of what the session keeps apart from its log, by ids: `{artifacts, nextAfter?}`."""
        return await self._call(m.ArtifactListResult, "artifact/list", after=after, limit=limit)

    async def read_artifact(
        self,
        artifact: str,
        *,
        encoding: Literal["utf-8", "base64"] | None = None,
        offset: int | None = None,
        length: int | None = None,
    ) -> m.ArtifactReadResult:
        """A piece of one: `{text or data, nextOffset, sizeBytes, sha256}`."""
        return await self._call(
            m.ArtifactReadResult, "artifact/read", artifact=artifact, encoding=encoding, offset=offset, length=length
        )

    async def list_processes(self) -> m.ProcessListResult:
        """The background processes that run, and the newest of those that ended: `{processes, cursor}`."""
        return await self._call(m.ProcessListResult, "process/list")

    async def read_process(
        self,
        process_id: str,
        *,
        encoding: Literal["utf-8", "base64"] | None = None,
        offset: int | None = None,
        length: int | None = None,
        wait_ms: int | None = None,
    ) -> m.ProcessReadResult:
        """What one wrote, from a byte on: `{process, text or data, offset, skippedBytes, nextOffset, hasMore}`."""
        wish = {"encoding": encoding, "offset": offset, "length": length, "waitMs": wait_ms}
        return await self._call(m.ProcessReadResult, "process/read", processId=process_id, **wish)

    async def stop_process(self, process_id: str, *, timeout_ms: int | None = None) -> m.ProcessStopResult:
        """End one and all that it started; returns when nothing of it runs, or after `timeout_ms`."""
        return await self._call(m.ProcessStopResult, "process/stop", processId=process_id, timeoutMs=timeout_ms)

    async def text(self, value: str | m.Reference) -> str:
        """A member of an event that may be a reference, as its whole text."""
        if isinstance(value, str):
            return value
        pieces: list[str] = []
        offset = 0
        while offset < value["sizeBytes"]:
            piece = await self.read_artifact(value["artifact"], offset=offset)
            pieces.append(piece.get("text", ""))
            offset = piece["nextOffset"]
        return "".join(pieces)

    async def content(self, value: m.Reference) -> bytes:
        """The bytes of what a reference names, such as an image."""
        pieces: list[bytes] = []
        offset = 0
        while offset < value["sizeBytes"]:
            piece = await self.read_artifact(value["artifact"], encoding="base64", offset=offset)
            pieces.append(b64decode(piece.get("data", "")))
            offset = piece["nextOffset"]
        return b"".join(pieces)

    async def close(self) -> m.SessionResult:
        """Cancel what runs and what waits, and close the session; it can be resumed."""
        self._client.follow(self.id, None)
        return await self._call(m.SessionResult, "session/close")

    async def export(self) -> m.SessionExportResult:
        """Put the session, as it stands, into an archive, to be read with `read_artifact`:
        `{artifact, sizeBytes, sha256, name, cursor, events}`. `export_to` does both."""
        return await self._call(m.SessionExportResult, "session/export")

    async def export_to(self, path: str | PathLike[str]) -> m.SessionExportResult:
        """Export the session into a new file.

        Raises:
            FileExistsError: there is one of this name.
            OSError: it cannot be written.
        """
        exported = await self.export()
        async with await anyio.open_file(path, "xb") as file:
            try:
                offset = 0
                while offset < exported["sizeBytes"]:
                    piece = await self.read_artifact(exported["artifact"], encoding="base64", offset=offset)
                    await file.write(b64decode(piece.get("data", "")))
                    offset = piece["nextOffset"]
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await anyio.Path(path).unlink()
                raise
        return exported

    async def delete(self, *, expect: Mapping[str, str] | None = None) -> m.SessionDeleteResult:
        """Cancel what runs, and remove the session for ever: `{sessionId, deletedAt}`. Iterations over its events
        end with `HamesError`; `expect` may name the `workspace` and the `snapshotDigest` that it must have."""
        self._client.follow(self.id, None)
        return await self._call(m.SessionDeleteResult, "session/delete", expect=expect)

    async def _call(self, _: type[Result], method: str, **params: Any) -> Result:
        result: Result = await self._client.request(method, given(sessionId=self.id, **params))
        return result


def given(**params: Any) -> Json:
    """The params that were given: None stands for absent."""
    return {name: value for name, value in params.items() if value is not None}


def slots(input: Input) -> list[Mapping[str, Any]]:
    """`input` as the protocol wants it."""
    return [{"type": "text", "text": input}] if isinstance(input, str) else list(input)


def new_key() -> str:
    """A fresh idempotency key."""
    return uuid.uuid4().hex
