"""Which sandbox a session gets: what was asked for, held against what is proved here.

Rule 1: what was asked for and cannot be had is refused before anything is asked of a model (AH-INV-4); only `auto`
takes less, and the snapshot says what.
Rule 2: nothing is proved before a session asks for it: `prove` comes before everything else here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hames.core.limits import DEFAULTS, SESSION_LIMITS
from hames.protocol.errors import HarnessFault, Refused

if TYPE_CHECKING:
    from hames.ports import Mismatch, Sandbox
    from hames.sandbox.bounds import Bounds
    from hames.sandbox.groups import Place
    from hames.sandbox.probe import Prober, Proof
    from hames.sandbox.process import ReaperProcesses

DEFAULT = "local"
"""Not `auto`: a command that finds its caches and its home read-only is not what a session without a word on it has
been so far."""


CONFINING = ("contained", "landlock")
"""What `auto` looks for, the strongest first."""


class Sandboxes:
    """The sandboxes of a process. `store` is the store's directory, `secret` what commands must not see besides it.

    `wanted` is the backend of sessions that name none, `program` bubblewrap, None to look for it. `limits` are the
    operator's.
    """

    def __init__(
        self,
        store: Path,
        processes: ReaperProcesses,
        *,
        secret: Sequence[Path] = (),
        wanted: str | None = None,
        program: str | None = None,
        limits: Mapping[str, int] = DEFAULTS,
    ) -> None:
        self._secret = (store, *secret)
        self._processes = processes
        self._wanted = wanted or DEFAULT
        self._program = program
        self._limits = limits
        self._probers: dict[str, Prober] = {}
        self._places: tuple[Place, ...] | None = None

    async def prove(self, backend: str | None) -> None:
        """See `ports.World.prove`."""
        wanted = backend or self._wanted
        for name in CONFINING:
            if wanted in (name, "auto"):
                await self._prove(name)
            if wanted == "auto" and not self._missing(name, "disabled"):
                return

    async def _prove(self, backend: str) -> Proof:
        if backend not in self._probers:
            from hames.sandbox.probe import Prober

            self._probers[backend] = Prober(self._secret, self._processes, backend=backend, program=self._program)
        return await self._probers[backend].prove()

    def choose(self, wish: Mapping[str, Any]) -> dict[str, Any]:
        """What stands in the snapshot, from `sandbox`, `network` and `workspace` of the params of `session/create`.

        Raises:
            Refused: `containment_unavailable`, with the guarantees that are missing, and why.
        """
        backend, network = wish.get("sandbox", self._wanted), wish.get("network", "general")
        for name in CONFINING:
            if backend in (name, "auto"):
                missing, why = self._missing(name, network), self._unfit(name, wish)
                if not missing and why is None:
                    return {"backend": name, "guarantees": self._held(name, network), "network": network}
                if backend == name:
                    raise self._unavailable(name, missing, why)
        if network == "disabled":
            raise self._unavailable(backend, ["net.disabled"], None)
        return {"backend": "local", "guarantees": self._held("local", network), "network": network}

    def _missing(self, backend: str, network: str) -> list[str]:
        """What a backend must guarantee in a session with this network, and does not."""
        from hames.sandbox import contained, landlocked

        asked = {"net.disabled"} if network == "disabled" else set()
        if backend == "landlock":
            asked |= set(landlocked.NEEDED)
        else:
            asked |= {name for name, claim in contained.CLAIMS.items() if claim != "no" and name != "net.disabled"}
        held = self._held(backend, network)
        return sorted(name for name in asked if held[name] == "no" and not name.startswith("limits."))

    def _unfit(self, backend: str, wish: Mapping[str, Any]) -> str | None:
        """Why a backend cannot confine this workspace; None where it can."""
        if backend != "landlock" or "workspace" not in wish:
            return None
        from hames.sandbox.landlocked import exposed

        return exposed(Path(os.path.realpath(wish["workspace"])), self._secret)

    def _unavailable(self, backend: str, missing: Sequence[str], unfit: str | None) -> Refused:
        from hames.sandbox.against import HINTS

        if backend == "local":
            message = "The sandbox `local` cannot disable the network. Ask for `contained`, or for `general`."
            return Refused("containment_unavailable", message, missing=missing)
        backend = "contained" if backend == "auto" else backend
        why = list(self._proof(backend).why) if unfit is None else [unfit]
        message = f"The sandbox `{backend}` is not to be had here: {' '.join(why)}"
        missing = missing or ["fs.read_confined"]
        return Refused("containment_unavailable", message[:1000], missing=missing, evidence=why, hint=HINTS[backend])

    def _proof(self, backend: str) -> Proof:
        from hames.sandbox.against import CLAIMS
        from hames.sandbox.probe import nothing

        prober = self._probers.get(backend)
        return (prober and prober.found) or nothing(None, "It was not tried yet.", CLAIMS[backend])

    def _held(self, backend: str, network: str) -> dict[str, str]:
        """What a backend guarantees in a session with this network."""
        if backend in CONFINING:
            from hames.sandbox.contained import guarantees_of

            return guarantees_of(self._proof(backend).guarantees, network=network == "general")
        from hames.sandbox.bounds import held
        from hames.sandbox.local import GUARANTEES

        return {**GUARANTEES, **held(self._groups(), confined=False)}

    def _groups(self) -> tuple[Place, ...]:
        if self._places is None:
            from hames.sandbox.groups import find

            self._places = find()
        return self._places

    def mismatches(self, recorded: Mapping[str, Any]) -> list[Mismatch]:
        """What of the sandbox in a snapshot is not given any more; limits are no authority: see `assurance`."""
        from hames.ports import Mismatch

        guarantees = recorded.get("guarantees", {})
        worse = {name: held for name, held in self._worse(recorded).items() if not name.startswith("limits.")}
        if not worse:
            return []
        return [Mismatch("sandbox.guarantees", {name: guarantees[name] for name in worse}, worse)]

    def _worse(self, recorded: Mapping[str, Any]) -> dict[str, str | None]:
        held = self._held(recorded["backend"], recorded.get("network", "general"))
        wanted = {name: given for name, given in recorded.get("guarantees", {}).items() if given != "no"}
        return {name: held.get(name) for name, given in wanted.items() if held.get(name) not in (given, "yes")}

    def assurance(self, snapshot: Mapping[str, Any]) -> dict[str, Any]:
        """What a session with this snapshot does not get now: what was said when it was made, and what went since."""
        recorded = snapshot["assurance"]
        return {**recorded, "reduced": sorted({*recorded["reduced"], *self._worse(snapshot["sandbox"])})}

    def open(self, session_id: str, snapshot: Mapping[str, Any]) -> Sandbox:
        """The sandbox of a session.

        Raises:
            HarnessFault: `containment_unavailable`: it cannot be had any more; what the workspace has to say.
        """
        from hames.sandbox.local import LocalSandbox

        workspace, cwd = Path(snapshot["workspace"]["path"]), Path(snapshot["cwd"])
        sandbox = snapshot["sandbox"]
        backend, network = sandbox["backend"], sandbox.get("network", "general")
        bounds = self._bounds(snapshot.get("limits", {}))
        if backend == "local":
            held = self._held("local", network)
            return LocalSandbox(
                workspace, cwd, session_id, self._processes, reserved=self._secret, bounds=bounds, guarantees=held
            )
        proof = self._proof(backend)
        if (backend == "contained" and proof.program is None) or self.mismatches(sandbox):
            message = f"The sandbox of this session is not to be had any more: {' '.join(proof.why)}"
            raise HarnessFault("containment_unavailable", message[:1000], boundary="sandbox")
        from hames.sandbox.probe import make

        return make(
            backend,
            workspace,
            cwd,
            session_id,
            self._processes,
            proof=proof,
            network=network == "general",
            secret=self._secret,
            bounds=bounds,
        )

    def _bounds(self, limits: Mapping[str, int]) -> Bounds:
        """Those of a session's commands: its own, and never above what the operator allows now."""
        from hames.sandbox.bounds import Bounds

        own = {name: min(int(limits.get(name, self._limits[name])), self._limits[name]) for name in SESSION_LIMITS}
        return Bounds.of(own, self._groups())

    async def check(self, snapshot: Mapping[str, Any] | None) -> dict[str, Any]:
        """Whether the sandbox of a session, or of one that names none, works: `{status, why?, details}`."""
        backend = self._wanted if snapshot is None else snapshot["sandbox"]["backend"]
        for name in CONFINING:
            if backend in (name, "auto"):
                proof = await self._prove(name)
                if not self._missing(name, "general"):
                    details = {"backend": name, "guarantees": dict(proof.guarantees)}
                    status = {"status": "degraded", "why": " ".join(proof.why)} if proof.why else {"status": "ok"}
                    return {**status, "details": details}
                if backend == name:
                    return {"status": "unavailable", "why": " ".join(proof.why), "details": {"backend": name}}
        why = "Commands run unconfined on this host: see `sandboxes` in capabilities/describe."
        details = {"backend": "local", "guarantees": self._held("local", "general")}
        return {"status": "degraded", "why": why, "details": details}


def about() -> list[dict[str, Any]]:
    """For `capabilities/describe`: what the sandboxes claim. Starts nothing."""
    from hames.sandbox import contained, landlocked
    from hames.sandbox.local import GUARANTEES

    proved = "when a session first asks for it: `health/check` and the snapshot say what was"
    confining = {"contained": contained.CLAIMS, "landlock": landlocked.CLAIMS}
    return [
        {
            "name": "local",
            "contained": False,
            "networkPosture": "general",
            "networkPostures": ["general"],
            "guarantees": dict(GUARANTEES),
            "platform": sys.platform,
        },
        *(
            {
                "name": name,
                "contained": True,
                "networkPosture": "general",
                "networkPostures": ["general", "disabled"],
                "guarantees": dict(claims),
                "proved": proved,
                "platform": "linux",
            }
            for name, claims in confining.items()
        ),
    ]
