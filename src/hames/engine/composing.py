"""What goes beside the conversation, as it is now: read from the workspace, held against the log, recorded.

Rule 1: which parts a request has follows from the log alone (`core/composition.py`); here is only found out what to
write there, before the request that needs it.
Rule 2: files are opened by the sandbox, so no link leads out of the workspace, and no more is read of them than is
shown; git is not run. What is wrong with a file is told, and ends nothing.
Rule 3: to a strict session nothing is added but how its slots are framed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Final, Literal

import anyio.to_thread

from hames.core.commands import Draft
from hames.core.composition import (
    DOCUMENT_BYTES,
    Checkout,
    Found,
    Part,
    Source,
    compose_data,
    documents,
    environment,
)
from hames.core.framing import FRAME
from hames.core.profiles import Profile, profile_of
from hames.engine.attempt import Attempt
from hames.ports import Equipment, Sandbox
from hames.protocol.errors import ToolFailed
from hames.protocol.jsontext import clean_text

HEAD_BYTES: Final = 1024
"""Of the HEAD of a checkout: more than a name of a branch takes."""

ABSENT: Final = frozenset({"not_found", "not_a_directory"})
"""Why a file cannot be opened that is not there."""


async def prepare_context(attempt: Attempt, step: int) -> None:
    """Before request `step`: have the composition that it needs in the log, and the changes since, durable and folded.

    Raises:
        Refused, HarnessFault: the log takes nothing.
    """
    known = attempt.conversation.composition
    if known is None:
        await _record(attempt, _composed(attempt, "first", await _parts(attempt)))
    elif (known.provider, known.model) != _model(attempt):
        await _record(attempt, _composed(attempt, "model", await _parts(attempt)))
    elif not attempt.conversation.is_paused:
        sources: tuple[Source, ...] = ("environment", "document") if step == 1 else ("document",)
        changes = known.changes(await _parts(attempt), sources)
        await _record(attempt, *(Draft("resources.changed", change) for change in changes))


async def composed_anew(attempt: Attempt) -> tuple[Draft, ...]:
    """What to record with a compaction: the composition, if it is another than that in force."""
    known, parts = attempt.conversation.composition, await _parts(attempt)
    if known is not None and known.parts == parts:
        return ()
    return (_composed(attempt, "compaction", parts),)


async def _record(attempt: Attempt, *drafts: Draft) -> None:
    if drafts:
        attempt.record(*drafts)
        await attempt.flush()


def _composed(attempt: Attempt, reason: Literal["first", "model", "compaction"], parts: tuple[Part, ...]) -> Draft:
    family = _profile(attempt).family
    return Draft("context.composed", compose_data(*_model(attempt), reason, family, parts))


def _model(attempt: Attempt) -> tuple[str, str]:
    return attempt.equipment.provider.name, attempt.equipment.model


def _profile(attempt: Attempt) -> Profile:
    return profile_of(*_model(attempt))


async def _parts(attempt: Attempt) -> tuple[Part, ...]:
    """The parts as they would be composed now, in their order."""
    snapshot = attempt.snapshot
    instructions = snapshot.get("instructions")
    session = (Part("session", clean_text(instructions)),) if instructions else ()
    if snapshot["mode"] == "strict":
        return (Part("agent", FRAME), *session)
    profile = _profile(attempt)
    looked = await anyio.to_thread.run_sync(
        _look, attempt.equipment, snapshot["workspace"]["path"], snapshot["cwd"], profile.documents
    )
    return (Part("agent", f"{profile.prompt}\n{FRAME}"), *looked, *session)


def today() -> str:
    """The day (UTC)."""
    return time.strftime("%Y-%m-%d", time.gmtime())


def _look(equipment: Equipment, workspace: str, cwd: str, names: Sequence[str]) -> tuple[Part, ...]:
    """The environment, and the documents from the root of the checkout, else of the workspace, to `cwd`. Blocking: a
    disk may be slow."""
    sandbox, directories = equipment.sandbox, _up(workspace, cwd)
    checkout: Checkout | None = None
    for place, directory in enumerate(directories):
        checkout = _checkout(sandbox, directory)
        if checkout is not None:
            directories = directories[: place + 1]
            break
    host = os.uname()
    where = environment(
        cwd=cwd,
        system=f"{host.sysname} ({host.machine})",
        date=today(),
        checkout=checkout,
        cutoff=equipment.cutoff,
    )
    paths = [f"{directory}/{name}" for directory in reversed(directories) for name in names]
    found = [_find(equipment, path, equipment.hide(os.path.relpath(path, workspace))) for path in paths]
    where = replace(where, text=equipment.hide(where.text))  # a directory or a branch may be called as a key is
    return (where, *documents([file for file in found if file is not None]))


def _up(workspace: str, cwd: str) -> list[str]:
    """The directories from `cwd` up to `workspace`."""
    found = [cwd]
    while cwd != workspace and len(cwd) > 1:
        cwd = os.path.dirname(cwd)
        found.append(cwd)
    return found


def _checkout(sandbox: Sandbox, directory: str) -> Checkout | None:
    """That which `directory` is the root of: it has a `.git`, be it a directory or the file of a worktree."""
    with suppress(ToolFailed):
        return Checkout(_beginning(sandbox, f"{directory}/.git/HEAD", HEAD_BYTES)[0])
    with suppress(ToolFailed):
        sandbox.directory(f"{directory}/.git")
        return Checkout(None)
    with suppress(ToolFailed):
        sandbox.open(f"{directory}/.git").close()
        return Checkout(None)
    return None


def _find(equipment: Equipment, path: str, name: str) -> Found | None:
    """The file at `path`, under the name that it is shown by; None where there is none."""
    try:
        data, size = _beginning(equipment.sandbox, path, DOCUMENT_BYTES + 1)
    except ToolFailed as failed:
        return None if failed.kind in ABSENT else Found(name, problem=failed.kind)
    shown = equipment.hide(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    return Found(name, shown, size + len(shown) - len(data))


def _beginning(sandbox: Sandbox, path: str, most_bytes: int) -> tuple[bytes, int]:
    """At most so much of a file, and its size.

    Raises:
        ToolFailed: it is no regular file in the workspace, or cannot be read.
    """
    with closing(sandbox.open(path)) as file:
        data = file.read(0, most_bytes)
        # It may have grown or shrunk since it was opened.
        return data, max(file.size, len(data)) if len(data) == most_bytes else len(data)
