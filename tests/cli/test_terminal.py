from __future__ import annotations

import os
import pty
from contextlib import suppress

from cli.command import Cli, finish
from e2e.driver import compatible
from fake.provider import FakeProvider, calls, text

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31mred\u202etxt.exe\rhidden"


def on_terminal(hames: Cli, *words: str, env: dict[str, str | None] | None = None) -> bytes:
    """All that a command shows on a terminal that is its stdout and stderr."""
    outer, inner = pty.openpty()
    process = hames.start(*words, env=env, stdout=inner, stderr=inner)
    os.close(inner)
    shown = b""
    with suppress(OSError):  # a terminal whose other side is closed answers EIO
        while chunk := os.read(outer, 65_536):
            shown += chunk
    os.close(outer)
    finish(process)
    return shown


def assert_harmless(shown: bytes) -> None:
    # The terminal itself turns LF into CR LF.
    plain = shown.replace(b"\r\n", b"\n").decode()
    assert not [c for c in plain if c in "\x1b\x07\r\x9b\u202e"], plain


def test_what_a_model_says_cannot_move_the_terminal(hames: Cli, fake: FakeProvider) -> None:
    fake.script(text(HOSTILE, chunks=7))
    shown = on_terminal(hames, "run", "go", env={**compatible(fake.url)})
    assert_harmless(shown)
    assert b"\\x1b]0;owned\\x07" in shown


def test_what_a_tool_says_cannot_move_the_terminal(hames: Cli, fake: FakeProvider) -> None:
    hames.workspace.joinpath("hostile").write_text(HOSTILE)
    fake.script(calls([("bash", {"command": f"cat hostile; : '{HOSTILE}'; exit 1"}), ("read", {"path": HOSTILE})]))
    fake.script(text("done"))
    assert_harmless(on_terminal(hames, "run", "go", env={**compatible(fake.url)}))


def test_a_replay_is_harmless_wherever_it_goes(hames: Cli, fake: FakeProvider) -> None:
    fake.script(calls([("bash", {"command": f"printf '{HOSTILE}'"})]), text(HOSTILE))
    session = hames("run", "--json", "--title", HOSTILE, HOSTILE, env=compatible(fake.url)).record["sessionId"]
    for words in (["replay", session], ["sessions", "list"], ["sessions", "show", session]):
        assert_harmless(hames(*words).out.encode())


def test_a_program_gets_the_answer_as_it_is(hames: Cli, fake: FakeProvider) -> None:
    fake.script(text(HOSTILE))
    assert hames("run", "go", env=compatible(fake.url)).out == HOSTILE + "\n"


def test_on_a_terminal_notes_stand_on_lines_of_their_own(hames: Cli) -> None:
    script = 'say before\ncall bash {"command": "exit 3"}\nsay after'
    lines = on_terminal(hames, "run", "--model", "offline", script).decode().splitlines()
    assert lines[1:] == ["before", "+ exit 3", "  exit code 3", "after"]
