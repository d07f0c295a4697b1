"""Every limit of Hames in one place: its default, the most a caller may ask for, and its unit.

Published in `initialize.limits` and `capabilities/describe` (AH-LIFE-4). A caller changes a session's limits
in `session/create`, lowers them for one turn in `turn/submit`; an operator changes defaults in the
configuration (`limits.<name>`) or with `HAMES_LIMIT_<NAME>`. What bounds a command is an operator's, and a session may
only ask for less.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from hames.core.records import record

Scope = Literal["turn", "session", "tool", "model", "server"]


@record
class Limit:
    """One limit. `scope`: `turn` may be set by a session and lowered by a turn, `session` lowered by a session; the
    others are set by an operator alone."""

    name: str
    default: int
    maximum: int
    scope: Scope
    meaning: str
    minimum: int = 1


NO_COST_LIMIT = 10**12
"""Of `costMicros`: a million dollars, which bounds nothing and needs no prices."""

NO_MEMORY_LIMIT = 2**50
"""Of `commandMemoryBytes`: a pebibyte, which bounds nothing."""

_TABLE = (
    Limit("steps", 100, 10_000, "turn", "model requests in a turn"),
    Limit("toolCalls", 1_000, 100_000, "turn", "tool calls in a turn", minimum=0),
    Limit("wallTimeMs", 3_600_000, 7 * 86_400_000, "turn", "from the first start of a turn to its end"),
    Limit("outputBytes", 4 * 2**20, 4 * 2**20, "turn", "model text and tool output of a turn"),
    Limit("costMicros", NO_COST_LIMIT, NO_COST_LIMIT, "turn", "cost of a turn, in millionths of a US dollar"),
    Limit(
        "loopRepeats",
        3,
        100,
        "turn",
        "equal rounds of calls until the model is told; again, and the turn ends",
        minimum=0,
    ),
    Limit(
        "commandMemoryBytes",
        NO_MEMORY_LIMIT,
        NO_MEMORY_LIMIT,
        "session",
        "memory of a command and what it starts",
        minimum=64 * 2**20,
    ),
    Limit("commandProcesses", 4_096, 65_536, "session", "processes and threads of a command at once", minimum=16),
    Limit("commandCpuSeconds", 604_800, 604_800, "session", "processor time of each process of a command"),
    Limit("commandFileBytes", 2**40, 2**50, "session", "size of a file that a command writes", minimum=1_024),
    Limit("commandOpenFiles", 65_536, 2**20, "session", "files that each process of a command has open", minimum=64),
    Limit("readLines", 2_000, 2_000, "tool", "lines in one answer of `read` or `read_many_files`"),
    Limit("readBytes", 50 * 1024, 50 * 1024, "tool", "bytes in one answer of `read`, `read_many_files` or `web_fetch`"),
    Limit("fileBytes", 64 * 2**20, 2**30, "tool", "size of a file that a tool reads or writes whole"),
    Limit("bashTimeoutMs", 120_000, 600_000, "tool", "wall time of one `bash` call"),
    Limit("bashLines", 2_000, 2_000, "tool", "last lines kept of the output of `bash`"),
    Limit("bashBytes", 50 * 1024, 50 * 1024, "tool", "last bytes kept of the output of `bash`"),
    Limit("keptOutputBytes", 64 * 2**20, 2**30, "tool", "bytes kept of a `bash` output shown in part", minimum=0),
    Limit("processes", 8, 64, "tool", "background processes of a session that run at once", minimum=0),
    Limit("processLifetimeMs", 86_400_000, 7 * 86_400_000, "tool", "of a background process"),
    Limit("processStartMs", 500, 10_000, "tool", "until a call that starts one is answered", minimum=0),
    Limit("processOutputBytes", 8 * 2**20, 2**30, "tool", "newest bytes kept of a background process", minimum=4096),
    Limit("grepMatches", 100, 100, "tool", "matches in one answer of `grep`"),
    Limit("grepLineChars", 500, 500, "tool", "characters of a matching line"),
    Limit("globPaths", 1_000, 1_000, "tool", "paths in one answer of `glob` or `list_dir`"),
    Limit("searchTimeoutMs", 60_000, 600_000, "tool", "wall time of one `grep` or `glob` call"),
    Limit("fetchTimeoutMs", 20_000, 600_000, "tool", "wall time of one `web_fetch` or `web_search` call"),
    Limit("fetchBytes", 5 * 2**20, 64 * 2**20, "tool", "bytes taken of an answer from the web"),
    Limit("termGraceMs", 250, 30_000, "tool", "from SIGTERM to SIGKILL when a turn is cancelled", minimum=0),
    Limit("timeoutGraceMs", 2_000, 30_000, "tool", "from SIGTERM to SIGKILL when a command times out", minimum=0),
    Limit("reapMs", 5_000, 60_000, "tool", "from SIGKILL until a tree that still lives is reported"),
    Limit("connectMs", 10_000, 120_000, "model", "to connect to the provider"),
    Limit("firstByteMs", 300_000, 3_600_000, "model", "from the request to the first byte of the answer"),
    Limit("idleMs", 120_000, 3_600_000, "model", "between two bytes of an answer"),
    Limit("requestMs", 1_800_000, 7_200_000, "model", "of one model request in all"),
    Limit("retries", 4, 20, "model", "repeats of one model request", minimum=0),
    Limit(
        "retryWaitMs",
        120_000,
        3_600_000,
        "model",
        "waiting between the repeats of one request, in all",
        minimum=0,
    ),
    Limit("retryBaseMs", 1_000, 60_000, "model", "first wait before a repeat; doubles each time", minimum=0),
    Limit("contextTokens", 0, 10_000_000, "model", "window of the model; 0: what is known of it", minimum=0),
    Limit("compactPercent", 85, 100, "model", "of the window, from which on the context is made shorter", minimum=10),
    Limit("frameInBytes", 16 * 2**20, 64 * 2**20, "server", "one frame from the client", minimum=1024),
    Limit("frameOutBytes", 2**20, 64 * 2**20, "server", "one frame to the client", minimum=2**20),
    Limit("pageBytes", 512 * 1024, 512 * 1024, "server", "events, turns or sessions in one answer", minimum=1024),
    Limit("pageEvents", 1_000, 10_000, "server", "events in one page"),
    Limit("metadataBytes", 64 * 1024, 64 * 1024, "server", "`metadata` or `_meta` of a request, as JSON", minimum=256),
    Limit("waitingRequests", 1_024, 65_536, "server", "requests of one connection that wait for something"),
    Limit("queueLength", 100, 1_000, "server", "turns waiting in a session"),
    Limit("inputBytes", 4 * 2**20, 4 * 2**20, "server", "text of all slots and instructions of one request"),
    Limit("inputSlots", 100, 100, "server", "slots of one request"),
    Limit("instructionsBytes", 96 * 1024, 96 * 1024, "server", "instructions of a session, as JSON", minimum=256),
    Limit("imageBytes", 3_750_000, 20 * 2**20, "server", "one image, before base64 adds a third", minimum=1024),
    Limit("imagePixels", 8_000, 16_000, "server", "width and height of an image"),
    Limit("requestImages", 50, 500, "model", "images in a model request; further ones are left out", minimum=0),
    Limit("requestImageBytes", 15_000_000, 100 * 2**20, "model", "images in a model request, together", minimum=0),
    Limit(
        "leaseMs",
        30_000,
        600_000,
        "server",
        "silence of an owner until another process takes over",
        minimum=200,
    ),
    Limit("heartbeatMs", 15_000, 600_000, "server", "between heartbeats while a turn waits", minimum=50),
    Limit(
        "settleMs",
        60_000,
        600_000,
        "server",
        "from cancel or deadline until the supervisor settles",
        minimum=100,
    ),
    Limit("reserveBytes", 8 * 2**20, 2**30, "server", "kept free to end what runs on a full disk", minimum=0),
    Limit("gateMs", 5_000, 60_000, "server", "waiting for the store's gate", minimum=100),
    Limit("waitMs", 600_000, 86_400_000, "server", "longest wait of one `events/read`"),
    Limit("chunkBytes", 8 * 1024, 64 * 1024, "server", "text in one durable chunk", minimum=64),
    Limit("chunkMs", 1_000, 60_000, "server", "between two durable chunks of an item", minimum=1),
)

LIMITS: Mapping[str, Limit] = {limit.name: limit for limit in _TABLE}

TURN_LIMITS: tuple[str, ...] = tuple(limit.name for limit in _TABLE if limit.scope == "turn")

SESSION_LIMITS: tuple[str, ...] = tuple(limit.name for limit in _TABLE if limit.scope == "session")

DEFAULTS: Mapping[str, int] = {limit.name: limit.default for limit in _TABLE}


def check_limit(name: str, value: object) -> int:
    """`value` as a limit called `name`.

    Raises:
        ValueError: no such limit, not an integer, or out of its range; the text says what is allowed, and goes on a
            sentence that begins with where the limit stands.
    """
    limit = LIMITS.get(name)
    if limit is None:
        raise ValueError(f"there is no limit {name!r}; there are: {', '.join(LIMITS)}")
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be an integer, not {repr(value)[:80]}")
    if not limit.minimum <= value <= limit.maximum:
        raise ValueError(f"must be from {limit.minimum} to {limit.maximum}, not {value}")
    return value
