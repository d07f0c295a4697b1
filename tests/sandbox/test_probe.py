"""A guarantee is given for what was tried and failed, and for nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hames.protocol.errors import Refused
from hames.protocol.jsontext import dumps, loads
from hames.sandbox import attacks, landlocked, probe
from hames.sandbox.against import AGAINST, AGAINST_ALL, AGAINST_LANDLOCK, AGAINST_LIMITS, AGAINST_NETWORK
from hames.sandbox.bubblewrap import find
from hames.sandbox.contained import CLAIMS
from hames.sandbox.groups import find as find_groups
from hames.sandbox.probe import Prober, weigh
from hames.sandbox.process import ReaperProcesses
from hames.sandboxes import Sandboxes

PYTHON = os.path.realpath(sys.executable)
TABLES = (*AGAINST_ALL.values(), AGAINST_LIMITS)
FAILED = dict.fromkeys(
    {"work", *AGAINST_NETWORK, *(attack for table in TABLES for attacks in table.values() for attack in attacks)}, False
) | {"work": True}
UNCONFINED = '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n'
BROKEN = "#!/bin/sh\necho bwrap: setting up uid map: Permission denied >&2\nexit 1\n"
LYING = "#!/bin/sh\necho all is well\n"


def stub(folder: Path, text: str) -> str:
    path = folder / "bwrap"
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store, and a home that attacks may be tried on."""
    made = tmp_path / "state" / "hames"
    made.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    return made


def test_every_attack_works_where_nothing_confines(store: Path, tmp_path: Path) -> None:
    name = f".hames-probe-{os.urandom(8).hex()}"
    with probe._bait(name, store) as bait:
        run = [PYTHON, "-I", "-S", attacks.__file__, dumps(dict(bait.aim)).decode()]
        told = subprocess.run(run, stdout=subprocess.PIPE, check=True)
        worked = {**loads(told.stdout), "make a file outside": bait.was_left_outside()}
        worked["send a datagram"] = bait.was_sent_to()

        assert not bait.was_left_outside()

    # Not every kernel has keyrings, nor everybody the right to use them.
    worked["start more processes than it may"] |= os.getuid() != 0
    worked["use the keys of the session"] |= attacks.session_keys(bait.aim["keyctl"]) < 0
    assert worked == dict.fromkeys(FAILED, True)
    assert os.listdir(store) == []


def test_all_is_guaranteed_where_every_attack_failed() -> None:
    proof = weigh("bwrap", FAILED, FAILED)

    assert (proof.guarantees, proof.why) == (CLAIMS, ())


@pytest.mark.parametrize("guarantee", AGAINST)
def test_nothing_is_guaranteed_against_an_attack_that_worked_or_was_not_tried(guarantee: str) -> None:
    for attack in AGAINST[guarantee]:
        for worked in ({**FAILED, attack: True}, {name: found for name, found in FAILED.items() if name != attack}):
            for pair in ((worked, FAILED), (FAILED, worked)):
                proof = weigh("bwrap", *pair)

                assert proof.guarantees[guarantee] == "no"
                assert attack in " ".join(proof.why)


@pytest.mark.parametrize("guarantee", AGAINST_LANDLOCK)
def test_the_weaker_one_is_believed_as_little(guarantee: str) -> None:
    assert weigh(None, FAILED, FAILED, backend="landlock").guarantees == landlocked.CLAIMS
    for attack in AGAINST_LANDLOCK[guarantee]:
        proof = weigh(None, {**FAILED, attack: True}, FAILED, backend="landlock")

        assert proof.guarantees[guarantee] == "no"
        assert attack in " ".join(proof.why)


@pytest.mark.parametrize("guarantee", AGAINST_LIMITS)
def test_a_limit_that_does_not_hold_is_not_given_and_nothing_else_is_the_worse_for_it(guarantee: str) -> None:
    for attack in AGAINST_LIMITS[guarantee]:
        proof = weigh("bwrap", {**FAILED, attack: True}, FAILED)

        assert (proof.guarantees, proof.why) == ({**CLAIMS, guarantee: "no"}, ())


@pytest.mark.parametrize("attack", AGAINST_NETWORK)
def test_the_network_is_not_disabled_where_anything_could_be_reached(attack: str) -> None:
    assert weigh("bwrap", {**FAILED, "connect by TCP": True}, FAILED).guarantees == CLAIMS
    assert weigh("bwrap", FAILED, {**FAILED, attack: True}).guarantees["net.disabled"] == "no"


def test_what_needs_a_network_namespace_alone_is_missing_where_there_is_none() -> None:
    proof = weigh("bwrap", FAILED, "Failed RTM_NEWADDR")

    assert proof.guarantees == {**CLAIMS, "net.disabled": "no"}
    assert proof.why == ("Without network: Failed RTM_NEWADDR",)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (UNCONFINED, "could make a file outside"),
        (BROKEN, "setting up uid map: Permission denied"),
        (LYING, "all is well"),
        (None, "There is no bubblewrap"),
    ],
)
async def test_a_program_that_does_not_confine_is_refused_and_asked_again(
    store: Path, processes: ReaperProcesses, tmp_path: Path, text: str | None, why: str
) -> None:
    program = str(tmp_path / "none") if text is None else stub(tmp_path, text)
    sandboxes = Sandboxes(store, processes, program=program)
    await sandboxes.prove("contained")

    for network in ("general", "disabled"):
        with pytest.raises(Refused) as failure:
            sandboxes.choose({"sandbox": "contained", "network": network})
        assert failure.value.kind == "containment_unavailable"
        assert "fs.write_confined" in failure.value.details["missing"]
        assert why in " ".join(failure.value.details["evidence"])
    # The weaker one was not tried.
    assert sandboxes.choose({"sandbox": "auto"})["backend"] == "local"
    with pytest.raises(Refused):
        sandboxes.choose({"sandbox": "auto", "network": "disabled"})
    # Nothing is kept, and nothing of the attacks is left.
    assert [name for name in os.listdir(store) if name != "run"] == []
    assert not [name for name in (*os.listdir(store.parent), *os.listdir(tmp_path)) if "probe" in name]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ("words.remove('--unshare-net') if '--unshare-net' in words else None", "net.disabled"),
        ("words[words.index('--ro-bind')] = '--bind'", "fs.write_confined"),
        ("at = words.index('--proc'); words[at : at + 1] = ['--ro-bind', '/proc']", "host.process_hidden"),
        ("words[words.index('--perms'):words.index('--chdir')] = []", "host.secrets_safe"),
        ("words[:] = [{'--ro-bind': '--bind'}.get(word, word) for word in words]", "fs.protected_subpaths"),
    ],
)
async def test_what_is_left_out_of_the_confinement_is_found_to_be_missing(
    store: Path, processes: ReaperProcesses, tmp_path: Path, change: str, missing: str
) -> None:
    real = os.environ.get("HAMES_BUBBLEWRAP") or find() or "/nonexistent"
    text = f"#!{PYTHON} -IS\nimport os, sys\nwords = sys.argv[1:]\n{change}\nos.execv({real!r}, ['bwrap', *words])\n"
    sandboxes = Sandboxes(store, processes, program=stub(tmp_path, text))
    await sandboxes.prove("contained")

    with pytest.raises(Refused) as failure:
        sandboxes.choose({"sandbox": "contained", "network": "disabled"})

    assert missing in failure.value.details["missing"]
    assert failure.value.details["evidence"]


@pytest.mark.anyio
async def test_what_was_proved_is_believed_for_a_day_and_for_the_same_program(
    store: Path, processes: ReaperProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = stub(tmp_path, LYING)
    kept = store / "sandbox.json"

    async def guarantees() -> object:
        return (await Prober([store], processes, program=program).prove()).guarantees

    mark = probe._mark(program, find_groups())
    kept.write_bytes(dumps({"mark": mark, "at": 1_000.0, "guarantees": dict(CLAIMS)}))
    monkeypatch.setattr("time.time", lambda: 1_000.0 + probe.KEEP_S - 1)
    assert await guarantees() == CLAIMS
    monkeypatch.setattr("time.time", lambda: 1_000.0 + probe.KEEP_S)
    assert await guarantees() != CLAIMS
    monkeypatch.setattr("time.time", lambda: 1_000.0)
    for other in (b"", b"[]", b"{}", dumps({**loads(kept.read_bytes()), "mark": [*mark[:-1], -1]})):
        kept.write_bytes(other)
        assert await guarantees() != CLAIMS


@pytest.mark.anyio
async def test_who_asks_for_the_host_has_nothing_proved(store: Path, processes: ReaperProcesses) -> None:
    sandboxes = Sandboxes(store, processes, program="/nonexistent")
    await sandboxes.prove(None)
    await sandboxes.prove("local")

    chosen = sandboxes.choose({})

    assert (chosen["backend"], chosen["network"]) == ("local", "general")
    assert sandboxes.mismatches(chosen) == []
    with pytest.raises(Refused) as failure:
        sandboxes.choose({"network": "disabled"})
    assert failure.value.details == {"missing": ["net.disabled"]}
    assert sandboxes._probers == {}


@pytest.mark.anyio
async def test_a_session_that_was_contained_is_not_opened_where_it_cannot_be(
    store: Path, processes: ReaperProcesses, tmp_path: Path
) -> None:
    sandboxes = Sandboxes(store, processes, program="/nonexistent")
    await sandboxes.prove("contained")
    recorded = {"backend": "contained", "guarantees": {**CLAIMS, "net.disabled": "no"}, "network": "general"}

    (mismatch,) = sandboxes.mismatches(recorded)

    assert mismatch.member == "sandbox.guarantees"
    assert mismatch.recorded["fs.read_confined"] == "partial"
    assert set(mismatch.found.values()) == {"no"}
    assert "net.disabled" not in mismatch.recorded
