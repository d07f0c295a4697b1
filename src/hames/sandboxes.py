"""Which sandbox a session gets: what was asked for, held against what is proved here.

Rule 1: what was asked for and cannot be had is refused before anything is asked of a model (AH-INV-4); only `auto`
takes less, and the snapshot says what.
Rule 2: nothing is proved before a session asks for it: `prove` comes before everything else here.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hames.protocol.errors import HarnessFault, Refused

if TYPE_CHECKING:
    from hames.ports import Mismatch, Sandbox
    from hames.sandbox.probe import Prober, Proof
    from hames.sandbox.process import ReaperProcesses

DEFAULT = "local"
"""Not `auto`: a command that finds its caches and its home read-only is not what a session without a word on it has
been so far."""


class Sandboxes:
    """The sandboxes of a process. `store` is the store's directory, `secret` what commands must not see besides it.

    `wanted` is the backend of sessions that name none, `program` bubblewrap, None to look for it.
    """

    def __init__(
        self,
        store: Path,
        processes: ReaperProcesses,
        *,
        secret: Sequence[Path] = (),
        wanted: str | None = None,
        program: str | None = None,
    ) -> None:
        self._secret = (store, *secret)
        self._processes = processes
        self._wanted = wanted or DEFAULT
        self._program = program
        self._prober: Prober | None = None

    async def prove(self, backend: str | None) -> None:
        """See `ports.World.prove`."""
        if (backend or self._wanted) != "local":
            await self._prove()

    async def _prove(self) -> Proof:
        if self._prober is None:
            from hames.sandbox.probe import Prober

            self._prober = Prober(self._secret, self._processes, program=self._program)
        return await self._prober.prove()

    def choose(self, wish: Mapping[str, Any]) -> dict[str, Any]:
        """What stands in the snapshot, from `sandbox` and `network` of the params of `session/create`.

        Raises:
            Refused: `containment_unavailable`, with the guarantees that are missing, and why.
        """
        backend, network = wish.get("sandbox", self._wanted), wish.get("network", "general")
        missing = ["net.disabled"] if network == "disabled" else []
        if backend != "local":
            from hames.sandbox.contained import CLAIMS

            held = self._held("contained", network)
            asked = {*missing, *(name for name, claim in CLAIMS.items() if claim != "no" and name != "net.disabled")}
            missing = sorted(name for name in asked if held[name] == "no")
            if not missing:
                return {"backend": "contained", "guarantees": held, "network": network}
        if backend == "contained" or network == "disabled":
            raise self._unavailable(backend, missing)
        return {"backend": "local", "guarantees": self._held("local", network), "network": network}

    def _unavailable(self, backend: str, missing: Sequence[str]) -> Refused:
        from hames.sandbox.probe import HINT

        if backend == "local":
            message = "The sandbox `local` cannot disable the network. Ask for `contained`, or for `general`."
            return Refused("containment_unavailable", message, missing=missing)
        why = list(self._proof().why)
        message = f"The sandbox `contained` is not to be had here: {' '.join(why)}"
        return Refused("containment_unavailable", message[:1000], missing=missing, evidence=why, hint=HINT)

    def _proof(self) -> Proof:
        from hames.sandbox.probe import nothing

        return (self._prober and self._prober.found) or nothing(None, "It was not tried yet.")

    def _held(self, backend: str, network: str) -> dict[str, str]:
        """What a backend guarantees in a session with this network."""
        if backend == "contained":
            from hames.sandbox.contained import guarantees_of

            return guarantees_of(self._proof().guarantees, network=network == "general")
        from hames.sandbox.local import GUARANTEES

        return dict(GUARANTEES)

    def mismatches(self, recorded: Mapping[str, Any]) -> list[Mismatch]:
        """What of the sandbox in a snapshot is not given any more."""
        from hames.ports import Mismatch

        guarantees = recorded.get("guarantees", {})
        held = self._held(recorded["backend"], recorded.get("network", "general"))
        wanted = {name: given for name, given in guarantees.items() if given != "no"}
        worse = {name: held.get(name) for name, given in wanted.items() if held.get(name) not in (given, "yes")}
        if not worse:
            return []
        return [Mismatch("sandbox.guarantees", {name: guarantees[name] for name in worse}, worse)]

    def open(self, session_id: str, snapshot: Mapping[str, Any]) -> Sandbox:
        """The sandbox of a session.

        Raises:
            HarnessFault: `containment_unavailable`: it cannot be had any more; what the workspace has to say.
        """
        from hames.sandbox.local import LocalSandbox

        workspace, cwd = Path(snapshot["workspace"]["path"]), Path(snapshot["cwd"])
        sandbox = snapshot["sandbox"]
        if sandbox["backend"] == "local":
            return LocalSandbox(workspace, cwd, session_id, self._processes, reserved=self._secret)
        proof = self._proof()
        if proof.program is None or self.mismatches(sandbox):
            message = f"The sandbox of this session is not to be had any more: {' '.join(proof.why)}"
            raise HarnessFault("containment_unavailable", message[:1000], boundary="sandbox")
        from hames.sandbox.contained import ContainedSandbox

        return ContainedSandbox(
            workspace,
            cwd,
            session_id,
            self._processes,
            program=proof.program,
            guarantees=proof.guarantees,
            network=sandbox["network"] == "general",
            secret=self._secret,
        )

    async def check(self, snapshot: Mapping[str, Any] | None) -> dict[str, Any]:
        """Whether the sandbox of a session, or of one that names none, works: `{status, why?, details}`."""
        backend = self._wanted if snapshot is None else snapshot["sandbox"]["backend"]
        if backend != "local":
            proof = await self._prove()
            if "yes" in (proof.guarantees["fs.write_confined"], proof.guarantees["host.process_hidden"]):
                details = {"backend": "contained", "guarantees": dict(proof.guarantees)}
                status = {"status": "degraded", "why": " ".join(proof.why)} if proof.why else {"status": "ok"}
                return {**status, "details": details}
            if backend == "contained":
                return {"status": "unavailable", "why": " ".join(proof.why), "details": {"backend": "contained"}}
        why = "Commands run unconfined on this host: see `sandboxes` in capabilities/describe."
        return {"status": "degraded", "why": why, "details": {"backend": "local"}}


def about() -> list[dict[str, Any]]:
    """For `capabilities/describe`: what the sandboxes claim. Starts nothing."""
    from hames.sandbox.contained import CLAIMS
    from hames.sandbox.local import GUARANTEES

    return [
        {
            "name": "local",
            "contained": False,
            "networkPosture": "general",
            "networkPostures": ["general"],
            "guarantees": dict(GUARANTEES),
            "platform": sys.platform,
        },
        {
            "name": "contained",
            "contained": True,
            "networkPosture": "general",
            "networkPostures": ["general", "disabled"],
            "guarantees": dict(CLAIMS),
            "proved": "when a session first asks for it: `health/check` and the snapshot say what was",
            "platform": "linux",
        },
    ]
