"""The handlers of the methods, by module; each is loaded when its first method is called.

A handler takes a `Call` whose params fit the method, and returns the result. Its name is the method's, with `_`
for `/` and `.`, in snake case.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hames.server.connection import Call

HANDLERS: Mapping[str, str] = {
    "initialize": "info",
    "capabilities/describe": "info",
    "health/check": "info",
    "ping": "info",
    "rpc.discover": "info",
    "shutdown": "info",
    "models/list": "info",
    "tools/list": "info",
    "session/create": "session",
    "session/resume": "session",
    "session/get": "session",
    "session/list": "session",
    "session/update": "session",
    "session/close": "session",
    "session/compact": "session",
    "session/delete": "session",
    "session/export": "export",
    "usage/get": "session",
    "turn/submit": "turn",
    "turn/update": "turn",
    "turn/steer": "turn",
    "turn/cancel": "turn",
    "turn/get": "turn",
    "turn/list": "turn",
    "turn/wait": "turn",
    "queue/resume": "turn",
    "events/read": "events",
    "events/subscribe": "events",
    "events/unsubscribe": "events",
    "artifact/list": "artifact",
    "artifact/read": "artifact",
    "process/list": "process",
    "process/read": "process",
    "process/stop": "process",
}


@cache
def handler_of(method: str) -> Callable[[Call], Awaitable[dict[str, Any]]]:
    """The handler of a method in the table."""
    module = import_module(f"hames.server.handlers.{HANDLERS[method]}")
    handler: Callable[[Call], Awaitable[dict[str, Any]]] = getattr(module, function_name(method))
    return handler


def function_name(method: str) -> str:
    """`turn/submit` is `turn_submit`, `rpc.discover` is `rpc_discover`."""
    return method.replace("/", "_").replace(".", "_")
