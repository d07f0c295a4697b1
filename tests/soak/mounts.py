"""Rounds on a file system of their own: really full, really read-only.

Rule 1: a round runs in a mount namespace of its own; the machine's mounts are as they were, and gone with it.
Rule 2: a file system with files open for writing cannot be remounted: the server that finds it read-only is a new one.
Rule 3: where that is not allowed, the round says so: it is no failure.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from crash.ledger import settle, still_usable
from crash.waits import until
from crash.whole import whole_events
from e2e.driver import Server, compatible, said
from engine.rules import check_log
from fake.provider import FakeProvider, text
from soak.checks import check_store, killed
from soak.full import full_file_system
from soak.load import Model, make_workspace
from soak.place import Impossible, Place, with_paths

SIZE_BYTES = 48 * 2**20
WAYS: Sequence[Sequence[str]] = (("unshare", "--mount"), ("unshare", "--mount", "--map-root-user"))
"""As root, and as a user who may make namespaces."""


def in_namespace(round_name: str, place: Place) -> str:
    """Run a round of this module in a mount namespace of its own."""
    way = _way()
    command = [*way, sys.executable, "-m", "soak.mounts", round_name, str(place.directory), str(place.seed)]
    done = subprocess.run([*command, str(place.size)], env=with_paths(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-5000:]}"
    return done.stdout.strip()


def _way() -> Sequence[str]:
    why = "there is no unshare"
    if shutil.which("unshare") is not None:
        for way in WAYS:
            tried = subprocess.run(
                [*way, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, text=True, check=False
            )
            if tried.returncode == 0:
                return way
            why = tried.stderr.strip()
    raise Impossible(f"a file system of its own cannot be mounted here: {why}")


def full_tmpfs(place: Place) -> str:
    """A round: a small file system is full `place.size` times."""
    return in_namespace("full", place)


def read_only(place: Place) -> str:
    """A round: a store's file system is read-only `place.size` times."""
    return in_namespace("read_only", place)


def _mounted(place: Place) -> Path:
    mount = place.home("mount")
    _mount("-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "tmpfs", str(mount))
    return mount


def _mounted_anew(option: str, mount: Path) -> bool:
    return subprocess.run(["mount", "-o", f"remount,{option}", str(mount)], check=False).returncode == 0


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _full(place: Place) -> str:
    mount = _mounted(place)
    try:
        return full_file_system(place, mount)
    finally:
        # The mount is gone with the namespace; what it holds is the evidence.
        shutil.copytree(mount, place.directory / "kept", ignore=shutil.ignore_patterns("*.sock*", "filler"))


def _read_only(place: Place) -> str:
    mount = _mounted(place)
    home, workspace = mount / "home", make_workspace(place.directory)
    home.mkdir()
    with FakeProvider() as fake:
        for n in range(place.size):
            fake.answer = Model(place.seed + n, large=True)
            _read_only_once(mount, home, workspace, compatible(fake.url), fake)
        assert fake.refusals == []
    check_store(home)
    shutil.copytree(home, place.directory / "kept", ignore=shutil.ignore_patterns("*.sock*"))
    return f"{place.size} times read-only"


def _read_only_once(mount: Path, home: Path, workspace: Path, env: dict[str, str], fake: FakeProvider) -> None:
    first = Server(home, env=env)
    try:
        session_id = first.create(workspace)
        turn_id = first.submit(session_id)
        first.wait_event("turn.started")
    finally:
        first.kill()
    killed(first)
    # What was killed may be a moment longer in the kernel, which has its files open meanwhile.
    until(lambda: _mounted_anew("ro", mount), "it is read-only")
    fake.answer = lambda _body: text("yes")
    with Server(home, env=env, cwd=workspace) as second:
        before = second.log(session_id)
        told = [(frame.value["params"]["cursor"], frame.event) for frame in first.frames if frame.event is not None]
        assert [(entry["cursor"], entry["event"]) for entry in before[: len(told)]] == told
        for _ in range(3):
            error = second.refused("turn/submit", sessionId=session_id, input=said("lost"))
            assert error["data"]["kind"] == "store_unavailable", error
        assert second.call("ping") == {}
        assert second.log(session_id) == before
        _mount("-o", "remount,rw", str(mount))
        settle(second, session_id)
        assert second.log(session_id)[: len(before)] == before
        still_usable(second, session_id)
        log = whole_events(second, session_id, [entry["event"] for entry in second.log(session_id)])
        check_log(log)
        assert sum(event.get("turnId") == turn_id and event["type"] == "turn.queued" for event in log) == 1
        assert "Traceback" not in second.stderr


def main(arguments: list[str]) -> None:
    """Run a round in the namespace that this process is in, and say how it went."""
    name, directory, seed, size = arguments
    rounds = {"full": _full, "read_only": _read_only}
    print(rounds[name](Place(Path(directory), int(seed), int(size))))


if __name__ == "__main__":
    main(sys.argv[1:])
