"""Wrong input to every method: a typed error that names what was wrong, and nothing that was accepted is lost.

The published schemas are the oracle: what they refuse the server refuses as -32602 by the member's name; what they
allow it may refuse for what it means, but never breaks on.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from e2e.checks import SCHEMAS
from e2e.driver import Server, said
from e2e.fixtures import Shared, Start
from fake.provider import last_user_text, text
from hames.protocol.errors import HAMES_ERROR, INVALID_PARAMS
from hames.protocol.methods import METHODS

WRONG: list[Any] = [
    *(None, True, False, 0, -1, 1.5, 2**53, 2**64, -(2**63), 1e300),
    *("", " ", "/", "..", "a/b", "\x00", "\ud800", "x" * 65, "x" * 5_000, "ü", "no\nline"),
    *([], [None], [[]], ["x"], [1, "x"], {}, {"a": 1}, {"type": "text"}, {"__proto__": {}}),
    *([{"type": "text"}], [{"type": "image", "text": "x"}], [{"type": "text", "text": 1}], [{"text": "x"}]),
    [{"type": "text", "text": "x", "role": "boss"}],
    [{"type": "text", "text": "x", "colour": 1}],
    {"steps": 0},
    {"steps": "1"},
    {"steps": 10**9},
    {"colour": 1},
    {"after": 1},
]
"""Each is tried as every member of every method."""

_numbers = itertools.count()


@pytest.fixture(scope="module")
def world(shared: Shared) -> Iterator[Shared]:
    """Session `s1` with an ended turn `t1`; whatever the tests do, it still works at the end and its log stands."""
    shared.fake.answer = lambda body: text(f"said {last_user_text(body)[:20]}")
    server = shared.server
    server.create(shared.workspace, "s1")
    server.create(shared.workspace, "s2")
    server.finish("s1", server.submit("s1", turnId="t1"))
    before = server.log("s1")
    yield shared
    turn = server.finish("s1", server.submit("s1", "still here"))
    assert turn["outcome"]["text"] == "said still here"
    assert server.log("s1")[: len(before)] == before
    listed = set()
    page: dict[str, str] = {}
    while True:
        answer = server.call("session/list", limit=200, **page)
        listed |= {session["sessionId"] for session in answer["sessions"]}
        if "nextPage" not in answer:
            break
        page = {"page": answer["nextPage"]}
    assert {"s1", "s2"} <= listed


def valid_params(method: str, shared: Shared) -> dict[str, Any]:
    """Params that are right, made anew: some name things that a call uses up."""
    turn = {"sessionId": "s1", "turnId": "t1"}
    match method:
        case "session/create":
            return {"workspace": str(shared.workspace)}
        case "session/close" | "session/delete":
            return {"sessionId": shared.server.create(shared.workspace, subscribe={})}
        case "session/update":
            return {"sessionId": "s1", "title": "a title"}
        case "turn/submit":
            return {"sessionId": "s2", "input": said("x")}
        case "turn/steer":
            return {"sessionId": "s1", "input": said("x")}
        case "turn/update":
            return {**turn, "input": said("x")}
        case "turn/get" | "turn/wait":
            return turn
        case "artifact/read":
            return {"sessionId": "s1", "artifact": "a1"}
        case "process/read" | "process/stop":
            return {"sessionId": "s1", "processId": "p1"}
        case "events/unsubscribe":
            return {"subscriptionId": "u1"}
        case _ if "sessionId" in _schema(method).get("properties", {}):
            return {"sessionId": "s1"}
    return {}


def _schema(method: str) -> dict[str, Any]:
    path = SCHEMAS / "methods" / f"{method.replace('/', '.')}.params.json"
    schema: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return schema


METHODS_TRIED = [name for name in METHODS if name != "initialize"]


@pytest.mark.parametrize("method", METHODS_TRIED)
def test_members_that_do_not_fit_are_refused_by_name_and_others_do_no_harm(world: Shared, method: str) -> None:
    schema = _schema(method)
    validator = Draft202012Validator(schema)
    for member in schema.get("properties", {}):
        for value in WRONG:
            params = {**valid_params(method, world), member: value}
            fits = _fits(validator, params)
            if method == "shutdown" and fits:
                continue
            response = world.server.ask(method, **params)
            if fits:
                assert response.get("error", {}).get("code", 0) in (0, INVALID_PARAMS, HAMES_ERROR), (value, response)
            else:
                _refused_by_name(response, member, value)
    assert world.server.call("ping") == {}


def _fits(validator: Draft202012Validator, params: dict[str, Any]) -> bool:
    # On the wire a half character is U+FFFD before anything looks at it.
    sent = json.loads(json.dumps(params).replace("\\ud800", "\\ufffd"))
    return bool(validator.is_valid(sent)) and not _is_float(sent)


def _is_float(value: Any) -> bool:
    """Whether an integer beyond 64 bits is in it: it is a float on arrival, and no schema can say so."""
    if isinstance(value, dict):
        return any(_is_float(inner) for name, inner in value.items() if name not in ("_meta", "metadata"))
    return isinstance(value, int) and value > 2**63


def _refused_by_name(response: dict[str, Any], member: str, value: Any) -> None:
    assert "error" in response, f"{member} = {value!r:.80} was taken: {response!r:.300}"
    error = response["error"]
    assert error["code"] == INVALID_PARAMS, (member, value, error)
    assert error["message"].startswith(f"params.{member}"), (member, value, error)
    assert len(error["message"]) < 1_000
    assert error["data"]["path"].startswith(member)


@pytest.mark.parametrize("method", METHODS_TRIED)
def test_missing_and_unknown_members_are_refused_by_name(world: Shared, method: str) -> None:
    params = valid_params(method, world)

    for member in _schema(method).get("required", []):
        error = world.server.refused(method, **{name: value for name, value in params.items() if name != member})
        assert (error["code"], error["message"]) == (INVALID_PARAMS, f"params.{member} is required")
    unknown = world.server.refused(method, **params, colour="red")

    assert unknown["code"] == INVALID_PARAMS
    assert unknown["message"].startswith("params.colour")


@pytest.mark.parametrize("method", [name for name in METHODS_TRIED if "sessionId" in _schema(name)["properties"]])
def test_session_that_is_not_there_is_named(world: Shared, method: str) -> None:
    if method == "session/create":
        error = world.server.refused(method, workspace=str(world.workspace), sessionId="s1")
        assert error["data"]["kind"] == "session_exists"
        return

    error = world.server.refused(method, **{**valid_params(method, world), "sessionId": "not-there"})

    assert (error["code"], error["data"]["kind"]) == (HAMES_ERROR, "session_not_found")
    assert "not-there" in json.dumps(error)


@pytest.mark.parametrize("method", ["turn/get", "turn/wait", "turn/update", "turn/cancel", "usage/get"])
def test_turn_that_is_not_there_is_named(world: Shared, method: str) -> None:
    error = world.server.refused(method, **{**valid_params(method, world), "turnId": "not-there"})

    assert (error["code"], error["data"]["kind"]) == (HAMES_ERROR, "turn_not_found")
    assert "not-there" in json.dumps(error)


def test_state_that_forbids_a_request_is_named(world: Shared) -> None:
    server = world.server

    kinds = {
        "exists": server.refused("turn/submit", sessionId="s1", turnId="t1", input=said("x")),
        "ended": server.refused("turn/update", sessionId="s1", turnId="t1", input=said("x")),
        "nothing to steer": server.refused("turn/steer", sessionId="s1", input=said("x")),
        "nothing to cancel": server.refused("turn/cancel", sessionId="s1"),
        "subscription": server.refused("events/unsubscribe", subscriptionId="u1"),
        "expected": server.refused("session/resume", sessionId="s1", expect={"workspace": "/elsewhere"}),
    }

    assert {name: error["data"]["kind"] for name, error in kinds.items()} == {
        "exists": "turn_exists",
        "ended": "turn_started",
        "nothing to steer": "no_active_turn",
        "nothing to cancel": "no_active_turn",
        "subscription": "subscription_not_found",
        "expected": "authority_mismatch",
    }


MALFORMED = ["", "1", "x", "1.", ".abcdefabcdef", "01.abcdefabcdef", "-1.abcdefabcdef", "1.ABCDEFABCDEF", "1.abc"]
MALFORMED += ["1.abcdefabcdef ", "1.abcdefabcdef\n", "٣.abcdefabcdef", "9" * 17 + ".abcdefabcdef", "1.abcdefabcdeg"]


@pytest.mark.parametrize("place", ["read after", "read before", "subscribe", "resume", "create", "get before"])
def test_cursors_that_are_malformed_foreign_or_ahead_are_told_apart(world: Shared, place: str) -> None:
    server = world.server
    foreign = server.call("events/read", sessionId="s2", limit=1)["nextCursor"]
    head = server.call("session/get", sessionId="s1")["cursor"]
    digits = head.partition(".")[2]
    wrong = "0" * 12 if digits != "0" * 12 else "1" * 12

    assert [_kind(server, world, place, text_) for text_ in MALFORMED] == ["cursor_malformed"] * len(MALFORMED)
    assert _kind(server, world, place, f"999999.{digits}") == "cursor_ahead"
    assert _kind(server, world, place, f"9007199254740991.{digits}") == "cursor_ahead"
    if place != "create":
        assert _kind(server, world, place, foreign) == "cursor_foreign"
    assert _kind(server, world, place, f"1.{wrong}") == "cursor_foreign"
    assert _kind(server, world, place, f"0.{wrong}") == "cursor_foreign"


def _kind(server: Server, world: Shared, place: str, cursor: str) -> str:
    match place:
        case "read after":
            error = server.refused("events/read", sessionId="s1", after=cursor)
        case "read before":
            error = server.refused("events/read", sessionId="s1", before=cursor)
        case "subscribe":
            error = server.refused("events/subscribe", sessionId="s1", after=cursor)
        case "resume":
            error = server.refused("session/resume", sessionId="s1", subscribe={"after": cursor})
        case "create":
            error = server.refused("session/create", workspace=str(world.workspace), subscribe={"after": cursor})
        case _:
            error = server.refused("session/get", sessionId="s1", view=True, before=cursor)
    kind: str = error["data"]["kind"]
    return kind


@pytest.fixture(scope="module")
def tricks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a file, links and a directory that cannot be meant."""
    base = tmp_path_factory.mktemp("tricks")
    inside = base / "inside"
    inside.mkdir()
    (base / "outside").mkdir()
    (base / "file").write_text("x")
    (inside / "file").write_text("x")
    (inside / "sub").mkdir()
    (inside / "out").symlink_to(base / "outside")
    (inside / "loop").symlink_to("loop")
    os.mkfifo(base / "fifo")
    return base


WORKSPACES = ["", ".", "relative", "../x", "~", "file:///tmp", "{0}/missing", "{0}/file", "{0}/fifo", "{0}/inside/loop"]
WORKSPACES += ["{0}\x00", "\x00", "{0}/" + "x" * 300, "/" + "x/" * 2_000, "{0}/" + "../" * 50 + "missing-at-root"]


@pytest.mark.parametrize("template", WORKSPACES, ids=lambda path: repr(path[:30]))
def test_workspace_that_is_no_directory_is_refused_by_name(world: Shared, tricks: Path, template: str) -> None:
    error = world.server.refused("session/create", workspace=template.format(tricks))

    assert error["code"] in (INVALID_PARAMS, HAMES_ERROR)
    assert error["code"] == INVALID_PARAMS or error["data"]["kind"] in ("invalid_config", "path_outside_mounts")
    assert "workspace" in json.dumps(error)


def test_path_of_100_kb_is_refused_by_name(world: Shared) -> None:
    for member in ("workspace", "cwd"):
        params = {**valid_params("session/create", world), member: "/" + "x" * 100_000}
        error = world.server.refused("session/create", **params)
        assert (error["code"], error["data"]["path"]) == (INVALID_PARAMS, member)
        assert len(error["message"]) < 500


CWDS = ["..", "../outside", "sub/../../outside", "out", "out/..", "{0}/outside", "/", "missing", "file", "loop", "\x00"]
CWDS += ["sub\x00", "x" * 300, "{0}"]


@pytest.mark.parametrize("template", CWDS, ids=lambda path: repr(path[:30]))
def test_cwd_outside_the_workspace_or_no_directory_is_refused_by_name(
    world: Shared, tricks: Path, template: str
) -> None:
    error = world.server.refused("session/create", workspace=str(tricks / "inside"), cwd=template.format(tricks))

    assert error["code"] in (INVALID_PARAMS, HAMES_ERROR)
    assert error["code"] == INVALID_PARAMS or error["data"]["kind"] in ("invalid_config", "path_outside_mounts")
    assert "cwd" in json.dumps(error)


@pytest.mark.parametrize("template", ["{0}/inside/../inside", "{0}/inside/", "{0}//inside/./sub/.."])
def test_workspace_is_recorded_by_its_real_path(world: Shared, tricks: Path, template: str) -> None:
    result = world.server.call("session/create", workspace=template.format(tricks), cwd="sub")

    assert result["session"]["workspace"] == str((tricks / "inside").resolve())
    assert result["session"]["cwd"] == str((tricks / "inside" / "sub").resolve())


def test_absurd_sizes_are_refused_by_name_and_the_largest_allowed_are_taken(world: Shared) -> None:
    server, base = world.server, valid_params("session/create", world)

    assert server.refused("session/create", **base, title="x" * 501)["data"]["path"] == "title"
    assert server.refused("session/create", **base, idempotencyKey="x" * 257)["data"]["path"] == "idempotencyKey"
    assert server.refused("session/create", **base, sessionId="x" * 65)["data"]["path"] == "sessionId"
    assert server.refused("turn/submit", sessionId="s2", input=said("x" * (4 * 2**20 + 1)))["data"]["details"] == {
        "limit": "inputBytes",
        "configured": 4 * 2**20,
        "observed": 4 * 2**20 + 1,
    }
    taken = server.call("session/create", **base, title="é" * 500, idempotencyKey="k" * 256, sessionId="x" * 64)
    assert taken["session"]["title"] == "é" * 500
    assert len(server.call("events/read", sessionId="s1", limit=2**53 - 1)["events"]) > 1


def test_odd_model_names_are_refused_by_name_or_recorded_as_they_are(world: Shared) -> None:
    for model in ("meta/llama-3", "/", "compatible/", "x" * 4_000, "a\nb", "compatible/a\x00b", " "):
        response = world.server.ask("session/create", workspace=str(world.workspace), model=model)
        if "error" in response:
            assert response["error"]["code"] in (INVALID_PARAMS, HAMES_ERROR)
            assert "model" in json.dumps(response["error"])
        else:
            route = response["result"]["session"]["model"]
            assert (route["provider"], route["model"]) == ("compatible", model.removeprefix("compatible/"))
    assert "nothing" in json.dumps(world.server.refused("models/list", provider="nothing"))


def test_number_that_has_no_canonical_form_is_named(world: Shared) -> None:
    """Content is digested by RFC 8785, which has no integers beyond what a double holds."""
    error = world.server.refused("session/create", workspace=str(world.workspace), metadata={"n": 2**60})

    assert (error["code"], error["data"]["path"].split(".")[0]) == (INVALID_PARAMS, "metadata")


@pytest.mark.slow
@pytest.mark.parametrize("member", ["instructions", "label", "_meta"])
def test_whatever_is_admitted_can_be_published(world: Shared, member: str) -> None:
    """Two bytes that leave as six: what fits a frame on its way in may not fit one on its way out."""
    server = world.server
    session_id = server.create(world.workspace)
    large = "\x85" * 7_900_000
    params: dict[str, Any] = {"sessionId": session_id, "turnId": "t", "input": said("x")}
    if member == "label":
        params["input"] = [{"type": "text", "text": "x", "label": "\x85" * 4_096}] * 1_900
    else:
        params[member] = large if member == "instructions" else {"large": large}
    request = {"jsonrpc": "2.0", "id": member, "method": "turn/submit", "params": params}

    (response,) = server.exchange(json.dumps(request, ensure_ascii=False).encode() + b"\n")

    if "error" in response:
        assert response["error"]["data"]["kind"] == "limit_exceeded"
    else:
        server.finish(session_id, "t")
    events = [entry["event"] for entry in server.log(session_id)]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    # That no frame is larger than is published is checked of all frames.


def test_list_of_sessions_answers_whatever_metadata_they_have(world: Shared) -> None:
    server, large = world.server, {"large": "x" * 9_000_000}
    for _ in range(4):
        server.ask("session/create", workspace=str(world.workspace), metadata=large)

    assert "result" in server.ask("session/list")


@pytest.mark.parametrize("member", ["workspace", "cwd"])
def test_a_directory_whose_real_name_is_not_utf8_is_refused_by_name(
    server: Server, workspace: Path, member: str
) -> None:
    os.mkdir(os.fsencode(workspace) + b"/bad\xff")
    os.symlink(os.fsencode(workspace) + b"/bad\xff", workspace / "link")
    wish = {"workspace": str(workspace / "link")} if member == "workspace" else {"cwd": str(workspace / "link")}

    error = server.refused("session/create", **{"workspace": str(workspace), **wish})

    assert error["data"]["kind"] == "invalid_config"
    assert error["data"]["details"]["member"] == member
    assert "bad\\udcff" in error["message"]
    assert "not UTF-8" in error["message"]


def test_a_workspace_that_became_a_link_to_such_a_name_does_not_match(
    start: Start, workspace: Path, tmp_path: Path
) -> None:
    server = start()
    session_id = server.create(workspace)
    assert server.stop() == 0
    os.mkdir(os.fsencode(tmp_path) + b"/bad\xff")
    workspace.rmdir()
    os.symlink(os.fsencode(tmp_path) + b"/bad\xff", workspace)

    error = start().refused("turn/submit", sessionId=session_id, input=said("go"))

    assert error["data"]["kind"] == "authority_mismatch"
