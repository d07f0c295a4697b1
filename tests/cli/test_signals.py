from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from cli.command import Cli, finish, is_alive
from e2e.driver import compatible
from fake.provider import FakeProvider, never

BOTH = pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])

SLEEPER = 'call bash {"command": "trap \'\' TERM; sleep 600 & echo $$ $! > pids; wait"}'
"""Writes two process ids into a named pipe, so that a test knows that it runs; minds no SIGTERM."""


def sleeping(hames: Cli, *options: str) -> tuple[subprocess.Popen[bytes], list[int]]:
    """A run whose tool sleeps, and the tool's processes."""
    os.mkfifo(hames.workspace / "pids")
    process = hames.start("run", *options, SLEEPER)
    pids = (hames.workspace / "pids").read_text().split()
    return process, [int(pid) for pid in pids]


@BOTH
def test_a_signal_cancels_the_turn_ends_its_processes_and_settles_the_log(hames: Cli, number: int, code: int) -> None:
    process, pids = sleeping(hames, "--json")
    process.send_signal(number)
    done = finish(process)
    name = signal.Signals(number).name
    assert done.code == done.record["exitCode"] == code
    assert (done.record["status"], done.record["cause"]) == ("cancelled", name)
    assert not [pid for pid in pids if is_alive(pid)]
    assert hames("replay", done.record["sessionId"]).out.endswith(f"[cancelled: client, {name}]\n")


@BOTH
def test_a_signal_while_the_model_is_silent_ends_the_run(
    hames: Cli, fake: FakeProvider, number: int, code: int
) -> None:
    fake.script(never())
    process = hames.start("run", "go", env=compatible(fake.url))
    fake.wait_for_requests(1)
    process.send_signal(number)
    done = finish(process)
    assert done.code == code
    assert "the turn is cancelled" in done.err
    fake.wait_for_disconnects(1)


def test_a_second_signal_leaves_at_once_and_the_processes_end_too(hames: Cli) -> None:
    process, pids = sleeping(hames, "--json")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    done = finish(process)
    assert done.code == done.record["exitCode"] == 130
    assert not [pid for pid in pids if is_alive(pid)]


def test_a_killed_run_is_interrupted_and_the_next_one_settles_it(hames: Cli) -> None:
    process, _ = sleeping(hames, "--json")
    session = json.loads(hames("sessions", "list", "--json").out)["sessionId"]
    process.kill()
    finish(process)
    assert "interrupted" in hames("sessions", "list").out
    done = hames("run", "--session", session, "say next")
    assert (done.code, done.out) == (0, "next\n")
    told = hames("replay", session).out
    assert "[recovered after" in told
    assert "[lease_lost]" in told
    assert told.endswith("next\n    19  [completed]\n")


def test_a_signal_while_the_prompt_is_awaited_ends_with_a_record(hames: Cli, tmp_path: Path) -> None:
    fifo = tmp_path / "input"
    os.mkfifo(fifo)
    process = hames.start("run", "--json", stdin=os.open(fifo, os.O_RDWR))
    assert process.stdout is not None
    wait_until_it_sleeps_in_read(process.pid)
    process.send_signal(signal.SIGTERM)
    done = finish(process)
    assert done.code == done.record["exitCode"] == 143
    assert (done.record["status"], done.record["cause"]) == ("cancelled", "SIGTERM")


def wait_until_it_sleeps_in_read(pid: int) -> None:
    """Until the process waits in read(2) for its input."""
    while not Path(f"/proc/{pid}/wchan").read_text().startswith(("pipe_read", "anon_pipe_read", "wait_for_partner")):
        os.sched_yield()
