"""The table of methods and notifications: one row each. Importing it builds no model.

A new method is its params and result, a row here and a handler of the same name in `server/handlers.py`;
a test holds the two tables equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Method:
    """A method. `params` and `result` name a `TypedDict` in `protocol.params` and `protocol.results`.

    `ordered`: requests that name one session commit in frame order on a connection. `waits`: it may take
    long, so it may not stand in a batch. `early`: answers before `initialize`.
    """

    name: str
    params: str
    result: str
    summary: str
    ordered: bool = False
    waits: bool = False
    early: bool = False


_METHODS = (
    Method("initialize", "Initialize", "InitializeResult", "Agree on a protocol version.", early=True),
    Method("capabilities/describe", "Empty", "CapabilitiesResult", "What this build can do.", early=True),
    Method("health/check", "HealthCheck", "HealthResult", "Whether what a session needs works now."),
    Method("ping", "Empty", "EmptyResult", "Answers whatever else runs.", early=True),
    Method("session/create", "SessionCreate", "SessionCreateResult", "Make a session.", ordered=True),
    Method("session/resume", "SessionResume", "SessionResult", "Attach to a session.", ordered=True),
    Method("session/get", "SessionGet", "SessionResult", "Read a session.", ordered=True),
    Method("session/list", "SessionList", "SessionListResult", "List sessions."),
    Method("session/update", "SessionUpdate", "SessionUpdateResult", "Change the title or the model.", ordered=True),
    Method("session/close", "SessionRef", "SessionResult", "Cancel what runs and close.", ordered=True, waits=True),
    Method("session/delete", "SessionDelete", "SessionDeleteResult", "Remove it for ever.", ordered=True, waits=True),
    Method("session/export", "SessionRef", "SessionExportResult", "Put a session into one file.", waits=True),
    Method("turn/submit", "TurnSubmit", "TurnSubmitResult", "Admit a turn.", ordered=True),
    Method("turn/update", "TurnUpdate", "TurnResult", "Change a queued turn.", ordered=True),
    Method("turn/steer", "TurnSteer", "TurnSteerResult", "Speak to the running turn.", ordered=True),
    Method("turn/cancel", "TurnCancel", "TurnResult", "Stop a turn.", ordered=True),
    Method("turn/get", "TurnRef", "TurnResult", "Read a turn.", ordered=True),
    Method("turn/list", "TurnList", "TurnListResult", "List turns.", ordered=True),
    Method("turn/wait", "TurnWait", "TurnWaitResult", "Wait for a turn to end.", waits=True),
    Method("session/compact", "SessionRef", "SessionCompactResult", "Make the context shorter.", ordered=True),
    Method("queue/resume", "SessionRef", "QueueResult", "Let a held queue go on.", ordered=True),
    Method("events/read", "EventsRead", "EventsReadResult", "Read a page of the log.", waits=True),
    Method("events/subscribe", "EventsSubscribe", "SubscribeResult", "Follow the log.", ordered=True, waits=True),
    Method("events/unsubscribe", "EventsUnsubscribe", "EmptyResult", "Stop following."),
    Method("artifact/list", "ArtifactList", "ArtifactListResult", "A session's large contents.", ordered=True),
    Method("artifact/read", "ArtifactRead", "ArtifactReadResult", "A piece of one.", waits=True),
    Method("process/list", "ProcessList", "ProcessListResult", "Background processes.", ordered=True),
    Method("process/read", "ProcessRead", "ProcessReadResult", "What one wrote.", waits=True),
    Method("process/stop", "ProcessStop", "ProcessStopResult", "End one.", waits=True),
    Method("usage/get", "UsageGet", "UsageResult", "Usage as reported.", ordered=True),
    Method("models/list", "ModelsList", "ModelsResult", "Models of a provider.", waits=True),
    Method("tools/list", "Empty", "ToolsResult", "Tools a session can have."),
    Method("rpc.discover", "Empty", "DiscoverResult", "The OpenRPC document.", early=True),
    Method("shutdown", "Shutdown", "EmptyResult", "Stop; answered once nothing runs.", waits=True, early=True),
)

METHODS: Mapping[str, Method] = {method.name: method for method in _METHODS}

CLIENT_NOTIFICATIONS: Mapping[str, str] = {"$/cancelRequest": "CancelRequestParams"}
"""What a client may send without an id, with its params."""

NOTIFICATIONS: Mapping[str, str] = {
    "event": "EventNotification",
    "delta": "DeltaNotification",
    "ownership": "OwnershipNotification",
    "subscription/closed": "SubscriptionClosed",
    "heartbeat": "Heartbeat",
}
"""What the server sends by itself. It sends no requests."""

PROTOCOL_VERSION = "1"
SCHEMA_VERSION = "1.0"
