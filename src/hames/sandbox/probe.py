"""Find out what `contained` and `landlock` guarantee on this machine, by attacking them.

Rule 1: nothing is guaranteed because a program is there, nor because it says so: the attacks run with the arguments
that commands run with, and what they did is looked at from outside where that can be.
Rule 2: when a session first asks for it, and once all is proved, not again in this process nor for a day on the same
kernel with the same program: what was found is kept in the store's directory.
Rule 3: a guarantee of which an attack worked, or was not tried, is `no`.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio

from hames.core.records import record
from hames.protocol.errors import HamesError, ToolFailed
from hames.protocol.jsontext import dumps, loads
from hames.sandbox import bubblewrap, contained, groups, hunt, landlocked
from hames.sandbox.against import AGAINST_ALL, AGAINST_LIMITS, AGAINST_NETWORK, CLAIMS, PROBE_LIMITS
from hames.sandbox.attacks import session_keys
from hames.sandbox.bounds import Bounds, held
from hames.sandbox.contained import ContainedSandbox
from hames.sandbox.landlocked import LandlockSandbox
from hames.sandbox.local import LocalSandbox
from hames.sandbox.process import ReaperProcesses, supported
from hames.sandbox.tree import SYS_KEYCTL

FORMAT = 2
"""Of what is kept, and of what is tried: another one is not believed."""

KEEP_S = 86_400
"""A day: an administrator may have changed what the kernel allows."""

PROBE_MS = 5_000
"""For each of two probes, which take some 50 ms: a busy machine must not lose its sandbox."""

ANSWER_BYTES = 4_096

_KEPT = {"contained": "sandbox.json", "landlock": "landlock.json"}
"""Where what was proved is kept."""


@record
class Proof:
    """What a sandbox guarantees here, in a session without network, and why not more."""

    program: str | None
    guarantees: Mapping[str, str]
    why: tuple[str, ...] = ()


def nothing(program: str | None, why: str, claims: Mapping[str, str] = contained.CLAIMS) -> Proof:
    """It guarantees nothing but what does not depend on it."""
    held = {name: claim if name.startswith("reap.") else "no" for name, claim in claims.items()}
    return Proof(program, held, (why,))


def make(
    backend: str,
    workspace: Path,
    cwd: Path,
    session_id: str,
    processes: ReaperProcesses,
    *,
    proof: Proof,
    network: bool,
    secret: Sequence[Path],
    bounds: Bounds,
) -> LocalSandbox:
    """A sandbox that confines, with what was proved of it.

    Raises:
        HarnessFault: see there.
    """
    if backend == "landlock":
        return LandlockSandbox(
            workspace,
            cwd,
            session_id,
            processes,
            guarantees=proof.guarantees,
            network=network,
            secret=secret,
            bounds=bounds,
        )
    return ContainedSandbox(
        workspace,
        cwd,
        session_id,
        processes,
        program=proof.program or "",
        guarantees=proof.guarantees,
        network=network,
        secret=secret,
        bounds=bounds,
    )


class Prober:
    """The proof of one backend in one process. `secret` is what commands must not see, the store's directory first.

    `program` is bubblewrap, None to look for it.
    """

    def __init__(
        self,
        secret: Sequence[Path],
        processes: ReaperProcesses,
        *,
        backend: str = "contained",
        program: str | None = None,
    ) -> None:
        self.found: Proof | None = None
        self._secret = secret
        self._store = secret[0]
        self._processes = processes
        self._backend = backend
        self._program = program
        self._places = groups.find()
        self._lock = anyio.Lock()

    async def prove(self) -> Proof:
        """What was found, by this process, by another one within a day, or now: who mends what is missing need not
        start anything again."""
        async with self._lock:
            if self.found is None or self.found.why:
                self.found = await self._find()
            return self.found

    async def _find(self) -> Proof:
        claims = CLAIMS[self._backend]
        if not supported():
            return nothing(None, "It needs Linux.", claims)
        program: str | None = None
        if self._backend == "landlock":
            if why := landlocked.why_not():
                return nothing(None, why, claims)
        else:
            program = bubblewrap.find(self._program)
            if program is None:
                at = f" at {self._program}" if self._program else ""
                return nothing(None, f"There is no bubblewrap{at}: `apt-get install bubblewrap` brings it.", claims)
        try:
            place, mark = self._store / _KEPT[self._backend], _mark(program, self._places)
        except OSError as error:
            return nothing(program, f"{program} cannot be looked at: {error.strerror}.", claims)
        kept = _read(place, mark, claims, program)
        if kept is not None:
            return kept
        proof = await self._try(program)
        if not proof.why:
            _write(place, mark, proof)
        return proof

    async def _try(self, program: str | None) -> Proof:
        answers: dict[bool, dict[str, bool] | str] = {}
        async with anyio.create_task_group() as group:

            async def attack(network: bool) -> None:
                try:
                    answers[network] = await self._attack(program, network=network)
                except (HamesError, ToolFailed) as failure:
                    answers[network] = failure.message
                except OSError as error:
                    answers[network] = f"It could not be tried: {error.strerror}."

            group.start_soon(attack, True)
            group.start_soon(attack, False)
        proof = weigh(program, answers[True], answers[False], backend=self._backend)
        # What is bounded by the process, or by the user, is bounded in part.
        most = held(self._places, confined=True)
        weaker = {name: value for name, value in most.items() if proof.guarantees[name] != "no" and value != "yes"}
        return Proof(proof.program, {**proof.guarantees, **weaker}, proof.why)

    async def _attack(self, program: str | None, *, network: bool) -> dict[str, bool] | str:
        """Which attacks worked, or why none could be tried."""
        name = f".hames-probe-{os.urandom(8).hex()}"
        session_id = name[1:]
        bounds = Bounds.of(PROBE_LIMITS, self._places)
        with _bait(name, self._store) as bait:
            sandbox = make(
                self._backend,
                bait.workspace,
                bait.workspace,
                session_id,
                self._processes,
                proof=Proof(program, CLAIMS[self._backend]),
                network=network,
                secret=self._secret,
                bounds=bounds,
            )
            aim = {
                **bait.aim,
                "processes": PROBE_LIMITS["commandProcesses"] if bounds.grouped("pids") else 0,
                "memory": 2 * PROBE_LIMITS["commandMemoryBytes"],
            }
            try:
                result = await sandbox.run(
                    [*_attacker(), dumps(aim).decode()], timeout_ms=PROBE_MS, grace_ms=0, keep_bytes=ANSWER_BYTES
                )
            finally:
                await sandbox.aclose()
            seen = {"make a file outside": bait.was_left_outside(), "send a datagram": bait.was_sent_to()}
            worked = _answer(result.output)
            if result.exit_code != 0 or worked is None or not worked.get("work"):
                said = result.output.decode("utf-8", "replace").strip()[-300:]
                return f"A command in it ended with exit code {result.exit_code}: {said}"
            return {**worked, **seen}


def weigh(
    program: str | None,
    general: dict[str, bool] | str,
    disabled: dict[str, bool] | str,
    *,
    backend: str = "contained",
) -> Proof:
    """What follows from the attacks with and without a network: which worked, or why none could be tried."""
    claims = CLAIMS[backend]
    if isinstance(general, str):
        return nothing(program, general, claims)
    guarantees, why = dict(claims), []
    tried = [general] if isinstance(disabled, str) else [general, disabled]
    for guarantee, attacks in (*AGAINST_ALL[backend].items(), *AGAINST_LIMITS.items()):
        worked = [attack for attack in attacks if any(found.get(attack, True) for found in tried)]
        if worked:
            guarantees[guarantee] = "no"
            why += [f"A command could {attack}." for attack in worked if guarantee not in AGAINST_LIMITS]
    if isinstance(disabled, str):
        guarantees["net.disabled"] = "no"
        why.append(f"Without network: {disabled}")
    elif worked := [attack for attack in AGAINST_NETWORK if disabled.get(attack, True)]:
        guarantees["net.disabled"] = "no"
        why += [f"A command without network could {attack}." for attack in worked]
    return Proof(program, guarantees, tuple(dict.fromkeys(why)))


def _attacker() -> list[str]:
    """The command that attacks, without what it is to attack."""
    # Not the file: it may lie where commands see nothing. Not the link that a virtual environment has.
    return [os.path.realpath(sys.executable), "-I", "-S", "-c", Path(__file__).with_name("attacks.py").read_text()]


def _answer(output: bytes) -> dict[str, bool] | None:
    try:
        found = loads(output)
    except ValueError:
        return None
    return found if isinstance(found, dict) and all(isinstance(each, bool) for each in found.values()) else None


@record
class _Bait:
    """What is attacked: a workspace, and `aim` as `attacks.py` wants it."""

    workspace: Path
    aim: Mapping[str, Any]
    datagrams: socket.socket

    def was_left_outside(self) -> bool:
        """Whether a file was made where none should be; it is removed."""
        left = [Path(place) / self.aim["name"] for place, _, _ in self.aim["outside"]]
        found = [path for path in left if path.exists()]
        for path in found:
            path.unlink(missing_ok=True)
        return bool(found)

    def was_sent_to(self) -> bool:
        """Whether a datagram came."""
        with suppress(BlockingIOError):
            return bool(self.datagrams.recv(100))
        return False


@contextmanager
def _bait(name: str, store: Path) -> Iterator[_Bait]:
    with ExitStack() as stack:
        workspace = Path(os.path.realpath(stack.enter_context(tempfile.TemporaryDirectory(prefix="hames-probe-"))))
        hidden = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="probe-", dir=store)))
        sockets = Path(os.path.realpath(stack.enter_context(tempfile.TemporaryDirectory(prefix="hames-probe-"))))
        (workspace / ".git" / "hooks").mkdir(parents=True)
        (workspace / ".git" / "config").touch()
        secret = hidden / name
        secret.write_text("secret")
        victim = sockets / "victim"
        victim.write_text("something")
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        udp.setblocking(False)
        for address in (f"\0{name}", str(sockets / "s")):
            unix = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            unix.bind(address)
            unix.listen(1)
        places = {os.path.realpath(place) for place in (str(store.parent), os.path.expanduser("~"), "/")}
        keyctl = SYS_KEYCTL.get(os.uname().machine, 0)
        outside = [(place, os.stat(place)) for place in places if os.path.isdir(place)]
        aim = {
            "workspace": str(workspace),
            "outside": [(place, found.st_dev, found.st_ino) for place, found in outside],
            "secret": str(secret),
            "pid": os.getpid(),
            "start": hunt.start_time(os.getpid()),
            "keyctl": keyctl,
            "keys": session_keys(keyctl),
            "tcp": tcp.getsockname()[1],
            "udp": udp.getsockname()[1],
            "abstract": name,
            "file": str(sockets / "s"),
            "name": name,
            "victim": str(victim),
            "processes": 0,
            "memory": 0,
        }
        yield _Bait(workspace, aim, udp)


def _mark(program: str | None, places: Sequence[groups.Place]) -> list[Any]:
    """What a proof holds for."""
    found = os.stat(program) if program is not None else None
    boot = Path("/proc/sys/kernel/random/boot_id")
    booted = boot.read_text().strip() if boot.exists() else ""
    size, changed = (found.st_size, found.st_mtime_ns) if found is not None else (0, 0)
    kinds = [[place.version, *place.controllers] for place in places]
    return [FORMAT, program, size, changed, os.uname().release, booted, os.getuid(), kinds]


def _read(place: Path, mark: list[Any], claims: Mapping[str, str], program: str | None) -> Proof | None:
    with suppress(OSError, ValueError, KeyError, TypeError):
        kept = loads(place.read_bytes())
        if (
            kept["mark"] == mark
            and 0 <= time.time() - kept["at"] < KEEP_S
            and kept["guarantees"].keys() == claims.keys()
        ):
            return Proof(program, kept["guarantees"])
    return None


def _write(place: Path, mark: list[Any], proof: Proof) -> None:
    draft = place.with_name(f".{place.name}.{os.getpid()}")
    with suppress(OSError):
        # A store that cannot be written to keeps no proof, and each process finds its own.
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(dumps({"mark": mark, "at": time.time(), "guarantees": dict(proof.guarantees)}))
        os.replace(draft, place)
