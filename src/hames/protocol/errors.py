"""Every way a request, a turn or a tool call can fail, with one published `kind` each.

Three families, and every raise belongs to one: `Refused` (the caller asked for what cannot be: a JSON-RPC
error), `ToolFailed` (the model can act on it: goes back to the model) and `HarnessFault` (store, sandbox,
provider or invariant: ends the turn, its detail is for operators only, AH-TOOL-6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HAMES_ERROR = -32000
"""Carries `data {kind, boundary?, retryable, details}`."""
REQUEST_CANCELLED = -32800

ErrorKind = Literal[
    "not_initialized",
    "unsupported_protocol",
    "frame_too_large",
    "shutting_down",
    "session_not_found",
    "session_exists",
    "session_closed",
    "session_deleted",
    "session_corrupt",
    "session_incompatible",
    "session_owned",
    "authority_mismatch",
    "turn_not_found",
    "turn_exists",
    "turn_started",
    "turn_joined",
    "turn_mismatch",
    "idempotency_conflict",
    "session_busy",
    "queue_full",
    "no_active_turn",
    "cursor_malformed",
    "cursor_foreign",
    "cursor_ahead",
    "artifact_not_found",
    "artifact_corrupt",
    "process_not_found",
    "subscription_not_found",
    "invalid_config",
    "capability_unavailable",
    "containment_unavailable",
    "path_outside_mounts",
    "credential_missing",
    "credential_rejected",
    "model_unavailable",
    "model_gateway",
    "context_overflow",
    "empty_response",
    "output_truncated",
    "refused",
    "limit_exceeded",
    "host_failed",
    "store_unavailable",
    "store_full",
    "lease_lost",
    "internal",
]

Boundary = Literal[
    "model_gateway", "configuration", "sandbox", "mediator", "tool", "child", "artifact_store", "integration"
]


@dataclass(frozen=True, slots=True)
class KindInfo:
    """What a kind means (`meaning`), what to do about it (`advice`), and whether waiting alone may cure it."""

    meaning: str
    advice: str
    retryable: bool = False


KINDS: Mapping[ErrorKind, KindInfo] = {
    "not_initialized": KindInfo("The connection has not been initialized.", "Send `initialize` first."),
    "unsupported_protocol": KindInfo(
        "None of the offered protocol versions is spoken here.", "Offer one of `details.supported`."
    ),
    "frame_too_large": KindInfo("The frame is larger than the published limit.", "Send less, or refer to a file."),
    "shutting_down": KindInfo("The server takes no new work.", "Start a new server on the same store."),
    "session_not_found": KindInfo(
        "No session of this id is in the store.", "Check the id, and which store the server uses."
    ),
    "session_exists": KindInfo("A session of this id exists.", "Resume it, or choose another id."),
    "session_deleted": KindInfo(
        "The session was deleted; its id and its keys are not used again.",
        "Make a new session under another id and key.",
    ),
    "session_closed": KindInfo("The session is closed.", "Resume it to open it again."),
    "session_corrupt": KindInfo(
        "The stored log of this session does not prove itself.",
        "Nothing was changed; other sessions are unaffected. Restore a backup, or `hames repair` what proves itself.",
    ),
    "session_incompatible": KindInfo(
        "A newer build wrote state that this build cannot decide on.", "Use a build at least that new."
    ),
    "session_owned": KindInfo(
        "Another live process runs this session.",
        "Use `own: observe` or `prefer`, or stop the owner.",
        retryable=True,
    ),
    "authority_mismatch": KindInfo(
        "The world does not match what the session may do.",
        "Compare `details.fields`; restore the recorded value, name the `model` anew with `session/update` where it is "
        "the model's, or make a new session.",
    ),
    "turn_not_found": KindInfo("No turn of this id is in the session.", "Check the id with `turn/list`."),
    "turn_exists": KindInfo("A turn of this id exists.", "Choose another id, or use an idempotency key."),
    "turn_started": KindInfo("The turn is no longer queued.", "Steer it, cancel it, or submit another."),
    "turn_joined": KindInfo(
        "The turn was joined into its host and shares its outcome.", "Cancel `details.hostTurnId`."
    ),
    "turn_mismatch": KindInfo("Another turn is running.", "Read `details.active` and decide again."),
    "idempotency_conflict": KindInfo(
        "This idempotency key was used for other content.", "Use a fresh key for new content."
    ),
    "session_busy": KindInfo(
        "A turn runs and the caller asked not to queue.", "Wait, or submit with another `delivery`.", True
    ),
    "queue_full": KindInfo("The queue of the session is full.", "Wait for a turn to end.", True),
    "no_active_turn": KindInfo("No turn is running.", "Submit a turn instead."),
    "cursor_malformed": KindInfo("Not a cursor.", "Pass a cursor as it was received."),
    "cursor_foreign": KindInfo("The cursor is not of this log as it stands.", "Read again from the start."),
    "cursor_ahead": KindInfo(
        "The cursor is beyond the head of the log.",
        "The store went back or differs: read again from the start.",
    ),
    "artifact_not_found": KindInfo(
        "The session has no artifact of this id.", "Check the id with `artifact/list`; an export is kept for a day."
    ),
    "artifact_corrupt": KindInfo(
        "The content of this artifact is missing or does not match its digest.",
        "Nothing was changed. Keep a copy of the store, and restore a backup of it.",
    ),
    "process_not_found": KindInfo(
        "The session has no background process of this id, or it ended long ago.",
        "See `process/list`; the log has the end of every one, with its output.",
    ),
    "subscription_not_found": KindInfo("No such subscription on this connection.", "Subscribe again."),
    "invalid_config": KindInfo("A configured or given value is not valid.", "Correct the value that is named."),
    "capability_unavailable": KindInfo("This build or platform cannot do that.", "Read `capabilities/describe`."),
    "containment_unavailable": KindInfo("A required containment guarantee cannot be given here.", "See `details`."),
    "path_outside_mounts": KindInfo("The path leaves the workspace.", "Use a path within the workspace."),
    "credential_missing": KindInfo(
        "No credential can be had for the model.", "Configure one, or mend what `details.setting` names."
    ),
    "credential_rejected": KindInfo("The provider rejected the credential.", "Check the configured key."),
    "model_unavailable": KindInfo("The model cannot be reached.", "Check the address and that the server runs.", True),
    "model_gateway": KindInfo("The model gateway failed.", "See `details`.", True),
    "context_overflow": KindInfo(
        "The conversation is larger than the model takes.", "Start a new session or use a larger model."
    ),
    "empty_response": KindInfo(
        "The model answered with neither text nor a tool call.", "Submit again or change the model.", True
    ),
    "output_truncated": KindInfo(
        "The model's answer was cut before it was whole.",
        "Ask for less at once; the message says whose limit it was, `details.stopReason` the vendor's word for it.",
    ),
    "refused": KindInfo(
        "The model or its vendor refused to answer.",
        "Change the request, or ask another model; `details.stopReason` is the vendor's reason.",
    ),
    "limit_exceeded": KindInfo(
        "A limit was reached.",
        "See `details {limit, configured, observed}`; of a cost also `assumed` and `reason`: see concepts.md.",
    ),
    "host_failed": KindInfo("The turn this one joined failed.", "See the host turn's error."),
    "store_unavailable": KindInfo(
        "The store cannot be used now.", "See `details`; nothing acknowledged is lost.", True
    ),
    "store_full": KindInfo("The store has no room.", "Free space; nothing acknowledged is lost.", True),
    "lease_lost": KindInfo(
        "The process that ran this turn stopped or was superseded.",
        "Submit again; see which calls are `unknown`.",
    ),
    "internal": KindInfo("An invariant of Hames failed.", "Report it; the log is unharmed."),
}

assert set(KINDS) == set(get_args(ErrorKind))


class HamesError(Exception):
    """A typed failure: `kind` is published, `message` says what was seen, what is allowed and what to do.

    `details` goes to the caller, so it never holds a secret. `boundary` stands on failures, not on refusals.
    """

    def __init__(
        self,
        kind: ErrorKind,
        message: str | None = None,
        *,
        boundary: Boundary | None = None,
        retryable: bool | None = None,
        **details: Any,
    ) -> None:
        info = KINDS[kind]
        self.kind: ErrorKind = kind
        self.message = message or f"{info.meaning} {info.advice}"
        self.boundary: Boundary | None = boundary
        self.retryable = info.retryable if retryable is None else retryable
        self.details: dict[str, Any] = details
        super().__init__(f"{kind}: {self.message}")

    def data(self) -> dict[str, Any]:
        """The `data` member of the JSON-RPC error, also the `error` of a failed turn with its `message`."""
        data: dict[str, Any] = {"kind": self.kind, "retryable": self.retryable}
        if self.boundary is not None:
            data["boundary"] = self.boundary
        data["details"] = self.details
        return data


class Refused(HamesError):
    """The state forbids what the caller asked for. Nothing was changed."""


class HarnessFault(HamesError):
    """The harness, its store, its sandbox or the provider failed. Ends the turn."""


class ToolFailed(Exception):
    """A tool call failed in a way the model can mend: `kind` is stable, `message` goes back to the model.

    `message` holds no operator detail: no path outside the workspace, no stack, no secret (AH-TOOL-10).
    """

    def __init__(self, kind: str, message: str, **details: Any) -> None:
        self.kind = kind
        self.message = message
        self.details: dict[str, Any] = details
        super().__init__(f"{kind}: {message}")


class InvalidParams(Exception):
    """Params that do not fit the method: JSON-RPC -32602. `path` names the member (`input[0].text`)."""

    def __init__(self, path: str, message: str) -> None:
        self.path = path
        self.message = message
        super().__init__(f"{path}: {message}" if path else message)
