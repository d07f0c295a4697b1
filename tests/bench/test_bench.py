"""`hames bench`: what it reports, what fails it, and that its own parts do what the figures lean on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from hames.bench.driver import BenchFailed, Peer, python
from hames.bench.model import answer_to
from hames.bench.processes import alive
from hames.bench.report import as_json, as_text, missed
from hames.bench.table import GATES, GROUPS, Figure, broken, chosen, judge

ALONE = """
import os
for name in [name for name in os.environ if name.startswith("COVERAGE_")]:
    del os.environ[name]
from hames.cli import main
main()
"""
"""`hames`, whose processes coverage does not follow: they are measured elsewhere, and would take twice as long."""


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`hames bench`, as it is typed."""
    command = [sys.executable, "-c", ALONE, "bench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
def test_a_short_run_has_a_figure_for_every_row() -> None:
    done = bench("--short", "--json")

    report = json.loads(done.stdout)
    rows = {row["name"]: row for row in report["rows"]}
    assert [name for name, row in rows.items() if "failure" in row] == []
    assert set(rows) == set(GATES)
    assert report["short"] is True
    assert report["missed"] == [name for name, row in rows.items() if row.get("ok") is False]
    assert done.returncode == (1 if report["missed"] else 0)
    for row in rows.values():
        assert {"name", "value", "unit", "n", "of", "meaning"} <= set(row)
        assert ("bound" in row) == ("ok" in row)
    for name in ("initialize", "turn_overhead", "deltas_5000", "tool_turn", "parallel", "replay", "restart", "ack"):
        assert rows[name]["floor"] > 0
        assert rows[name]["ratio"] > 0


@pytest.mark.slow
def test_a_missed_bound_fails_the_run_and_is_named() -> None:
    done = bench("--short", "--only", "ack", "--bound", "ack=0.000001", "--bound", "ack64=1")

    assert done.returncode == 1
    assert "bounds missed: ack\n" in done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert "MISSED" in lines["ack"]
    assert lines["ack64"].endswith("ok")


@pytest.mark.slow
def test_a_run_that_keeps_its_bounds_succeeds() -> None:
    done = bench("--short", "--only", "idle_wakeups", "--bound", "idle_wakeups=100000", "--json")

    assert done.returncode == 0
    assert [row["name"] for row in json.loads(done.stdout)["rows"]] == ["idle_wakeups"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--only", "speed"),
        ("--bound", "speed=1"),
        ("--bound", "ack"),
        ("--bound", "ack=fast"),
        ("--directory", "/nowhere/at/all"),
    ],
)
def test_an_option_that_means_nothing_is_bad_usage(arguments: tuple[str, ...]) -> None:
    done = bench(*arguments)

    assert done.returncode == 64
    assert done.stderr.startswith("hames: ")


def test_every_group_of_the_table_can_be_measured() -> None:
    assert all(callable(import_module(f"hames.bench.{group}").measure) for group in GROUPS)


def test_names_choose_rows_and_whole_groups_in_the_order_of_the_table() -> None:
    assert chosen(["ack", "initialize"]) == ["initialize", "ack", "ack64"]
    assert chosen(["turn_cpu"]) == ["turn_cpu"]
    assert chosen([]) == list(GATES)


def test_a_figure_is_judged_by_its_bound_or_by_its_ratio() -> None:
    bounds = {"ack": 1.0, "parallel": 100.0}
    assert judge(Figure("ack", 1.0, 1), bounds).ok is True
    assert judge(Figure("ack", 1.1, 1), bounds).ok is False
    assert judge(Figure("parallel", 99.0, 1), bounds).ok is False
    assert judge(Figure("parallel", 100.0, 1), bounds).ok is True
    assert judge(Figure("initialize", 199.0, 1, floor=100.0), {}).ok is True
    assert judge(Figure("initialize", 201.0, 1, floor=100.0), {}).ok is False
    assert judge(Figure("turn_growth", 9.0, 1), {}).ok is None


def test_a_row_that_cannot_be_measured_is_missed_and_says_why() -> None:
    row = broken("ack", "the process ended: no room", {})

    report = as_json([row], short=False, seconds=1.0)

    assert missed([row]) == report["missed"] == ["ack"]
    assert report["rows"][0]["failure"] == "the process ended: no room"
    assert "value" not in report["rows"][0]
    assert "no room" in as_text(row)


def test_the_model_follows_the_script_that_its_name_says() -> None:
    asked = b'{"model":"tool","messages":[{"role":"user","content":"go"}]}'
    answered = b'{"model":"tool","messages":[{"role":"user","content":"go"},{"role":"tool","content":""}]}'

    assert b'"tool_calls"' in answer_to(asked)
    assert b'"content":"ok"' in answer_to(answered)
    assert answer_to(b'{"model":"never"}') == b""
    assert answer_to(b'{"model":"busy"}').startswith(b"HTTP/1.1 503 ")
    assert answer_to(b'{"model":"compact","messages":"this is to be replaced by a summary"}') == b""
    assert b'"content":"ok"' in answer_to(b'{"model":"compact"}')
    assert b'"prompt_tokens":4' in answer_to(b'{"model":"long"}')
    assert answer_to(b'{"model":"deltas-7"}').count(b'"content"') == 7
    head, _, body = answer_to(b'{"model":"text"}').partition(b"\r\n\r\n")
    assert b"content-length: %d" % len(body) in head
    assert body.endswith(b"data: [DONE]\n\n")


def test_a_peer_that_ends_is_told_with_its_last_words(tmp_path: Path) -> None:
    argv = python("-c", "import sys; sys.exit('no such setting')")

    peer = Peer(argv, env=os.environ, cwd=tmp_path, errors=tmp_path / "stderr")
    with peer, pytest.raises(BenchFailed, match="no such setting"):
        peer.line()


def test_a_peer_that_answers_with_an_error_is_told_with_its_message(tmp_path: Path) -> None:
    argv = python("-c", 'print(\'{"id":1,"error":{"message":"not now"}}\', flush=True); input()')

    peer = Peer(argv, env=os.environ, cwd=tmp_path, errors=tmp_path / "stderr")
    with peer, pytest.raises(BenchFailed, match="not now"):
        peer.call("ping", {})


def test_a_process_that_is_dead_and_not_waited_for_is_not_alive() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdin is not None
    assert alive(process.pid)

    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    assert not alive(process.pid)
    process.stdin.close()
    process.wait()
    assert not alive(process.pid)
