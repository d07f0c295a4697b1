from __future__ import annotations

from types import ModuleType
from typing import Any, NotRequired, get_origin, get_type_hints

import pytest
from typing_extensions import is_typeddict

from hames.protocol import events, objects, params, processes, results
from hames.protocol.methods import CLIENT_NOTIFICATIONS, METHODS, NOTIFICATIONS, Method


def _messages(*modules: ModuleType) -> list[type]:
    return [
        value
        for module in modules
        for value in vars(module).values()
        if is_typeddict(value) and value.__module__ == module.__name__
    ]


def _required(message: Any) -> set[str]:
    """Annotations are text here, so `__required_keys__` does not know which are `NotRequired`."""
    hints = get_type_hints(message, include_extras=True)
    return {name for name, hint in hints.items() if message.__total__ and get_origin(hint) is not NotRequired}


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda method: method.name)
def test_a_method_names_messages_that_there_are_and_says_what_it_does(method: Method) -> None:
    assert METHODS[method.name] is method
    assert is_typeddict(getattr(params, method.params))
    assert is_typeddict(getattr(results, method.result))
    assert method.summary.endswith(".")


def test_notifications_name_messages_that_there_are() -> None:
    for name in CLIENT_NOTIFICATIONS.values():
        assert is_typeddict(getattr(params, name))
    for name in NOTIFICATIONS.values():
        assert is_typeddict(getattr(results, name))


def test_no_message_is_left_over() -> None:
    used = {method.params for method in METHODS.values()} | set(CLIENT_NOTIFICATIONS.values())
    inner = {"FirstTurn", "Expect", "ClientInfo", "ClientCapabilities"}
    assert {message.__name__ for message in _messages(params)} == used | inner

    sent = {method.result for method in METHODS.values()} | set(NOTIFICATIONS.values())
    assert {message.__name__ for message in _messages(results)} == sent | {
        *("Health", "ServerInfo", "ServerCapabilities", "LimitInfo", "Model", "StoreInfo", "TransportInfo")
    }


@pytest.mark.parametrize(
    "message", _messages(params, results, objects, processes, events), ids=lambda message: message.__name__
)
def test_every_message_says_what_it_is(message: type) -> None:
    doc = message.__dict__.get("__doc__") or ""

    assert doc.strip()
    assert doc.strip() != "dict() -> new empty dictionary"


def test_only_the_handshake_ignores_what_it_does_not_know() -> None:
    opened = {
        message.__name__
        for message in _messages(params)
        if getattr(message, "__pydantic_config__", {}).get("extra") != "forbid"
    }

    assert opened == {"Initialize", "ClientInfo", "ClientCapabilities"}


def test_a_method_of_one_session_is_ordered_unless_it_waits_or_only_reads() -> None:
    unordered = {
        method.name
        for method in METHODS.values()
        if not method.ordered and "sessionId" in _required(getattr(params, method.params))
    }

    assert unordered == {
        *("turn/wait", "events/read", "artifact/read", "session/export"),
        *("process/read", "process/stop"),
    }


def test_what_answers_before_the_handshake() -> None:
    early = {method.name for method in METHODS.values() if method.early}

    assert early == {"initialize", "ping", "capabilities/describe", "rpc.discover", "shutdown"}
