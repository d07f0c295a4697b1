"""The composition root: the only module that names adapters. Everything else gets them through ports.

`make_host` gives a server its parts; the store and the world behind it are made when a session is first asked
for, so that the handshake waits for none of them.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hames.config import Config, about_store, about_transport, config_path, home_path
from hames.core.limits import SESSION_LIMITS, TURN_LIMITS
from hames.core.redaction import redact
from hames.naming import OFFLINE
from hames.protocol.errors import HarnessFault, Refused
from hames.server.host import Host
from hames.workspace import identity, real_cwd, real_directory

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from hames.core.catalog import ModelFacts
    from hames.ports import Equipment, Mismatch, Observer, Provider, ReaperRecord, Store, Tool, World

SNAPSHOT_VERSION = 1

GARBAGE_EVERY = 10_000
"""Objects more than there were, until the youngest are searched for cycles: few are made here, and a search looks at
everything that a turn holds."""


def make_host(
    config: Config,
    environ: Mapping[str, str],
    tasks: TaskGroup,
    *,
    home: Path | None = None,
    transport: str = "stdio",
    framing: str = "auto",
    guest: bool = False,
) -> Host:
    """The parts of a process, none of them opened. With `transport` `memory` the process is that of a program which
    embeds Hames: nothing of it is tuned. A `guest` goes when it has what it wanted: it leaves turns that others queue
    meanwhile to them."""
    home = home or home_path(environ)

    worlds: list[LocalWorld] = []

    def make() -> tuple[Store, World]:
        store = make_store(config, home, lambda: worlds[0].processes.record)
        worlds.append(LocalWorld(config, store, home, environ))
        return store, worlds[0]

    limits = config.limits
    return Host(
        principal=principal(),
        limits=limits,
        make=make,
        about_store=lambda: about_store(home),
        about_parts=about_parts,
        preload=preload if transport == "stdio" else preload_sessions,
        preload_turns=preload_own_turns if transport == "stdio" else preload_turns,
        transport={**about_transport(limits, framing), "kind": transport},
        tasks=tasks,
        observe=make_observe(config, lambda text: worlds[0].hide(text)),
        guest=guest,
    )


def make_observe(config: Config, hide: Callable[[str], str]) -> Callable[[Store, Host], Observer] | None:
    """What makes the telemetry of a host; None where it is off. `hide` takes the secrets out of a text."""
    endpoint = config.get("telemetry.endpoint")
    if endpoint is None or config.get("telemetry.enabled") == "false":
        return None

    def observe(store: Store, host: Host) -> Observer:
        from hames.telemetry.settings import headers_of, traces_url
        from hames.telemetry.watch import Telemetry

        return Telemetry(
            store,
            host.tasks,
            url=traces_url(endpoint),
            headers=headers_of(config.get("telemetry.headers") or ""),
            content=hide if config.get("telemetry.content") == "true" else None,
            report=host.report,
        )

    return observe


def preload() -> None:
    """`preload_sessions`, in a process of our own."""
    give_memory_back()
    preload_sessions()
    keep_for_good()


def keep_for_good() -> None:
    """What is loaded stays: it is never searched for garbage again, and the search for it begins.

    No compiled module is written any more: of one that a full disk has no room for, Python keeps the beginning, and no
    process can load it again.
    """
    sys.dont_write_bytecode = True
    gc.freeze()
    gc.set_threshold(GARBAGE_EVERY)
    gc.enable()


def preload_sessions() -> None:
    """Import and build what the first session and the first turn will need, so that neither waits for it."""
    from hames.protocol.validate import prepare_params

    for module in (
        *("hames.engine.service", "hames.store", "apsw", "hames.sandbox.local", "hames.tools", "hames.credentials"),
        "rfc8785",
    ):
        import_module(module)
    prepare_params(("SessionCreate", "SessionResume", "TurnSubmit", "EventsSubscribe", "TurnWait", "TurnCancel"))


def give_memory_back() -> None:
    """Tell glibc to return large blocks at once, and to keep one arena for all threads: a burst of deltas would else
    leave tens of MB behind (mallopt(3)). A page of events is not large: its blocks come again and again, and
    fresh memory costs a page fault for every 4 KiB."""
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        m_arena_max, m_mmap_threshold, m_trim_threshold = -8, -3, -1
        mallopt(m_arena_max, 1)
        mallopt(m_mmap_threshold, 768 * 1024)
        mallopt(m_trim_threshold, 2 * 1024 * 1024)


def preload_own_turns(provider: str) -> None:
    """`preload_turns`, in a process of our own."""
    preload_turns(provider)
    gc.freeze()


def preload_turns(provider: str) -> None:
    """The same for what the first turn needs of a model and of tools; after the session is answered, not beside it."""
    modules = ("jsonschema", "hames.tools.todo", "hames.tools.web_fetch")
    for module in modules if provider == OFFLINE else ("httpx", "httpcore", *modules):
        import_module(module)


def principal() -> str:
    """The operating-system user, as it stands on events."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"


def make_store(config: Config, home: Path, reaper: Callable[[], ReaperRecord | None]) -> Store:
    """The store in `home`, not opened."""
    from hames.store import SqliteStore

    store: Store = SqliteStore(home, limits=config.limits, reaper=reaper)
    return store


def about_parts() -> dict[str, Any]:
    """Tools, providers, sandboxes and stores of this build, from their tables, for `capabilities/describe`."""
    from hames import sandboxes, toolsets
    from hames.providers import PROVIDERS

    return {
        "parentTools": toolsets.about(),
        "providers": [{"name": name} for name in PROVIDERS],
        "stores": [{"kind": "sqlite"}],
        "sandboxes": sandboxes.about(),
    }


class LocalWorld:
    """This host: configured providers, the sandboxes it has, every tool. Implements `ports.World`."""

    def __init__(self, config: Config, store: Store, home: Path, environ: Mapping[str, str]) -> None:
        from hames.routes import Routes
        from hames.sandbox.background import OutputFiles
        from hames.sandbox.process import ReaperProcesses
        from hames.sandboxes import Sandboxes
        from hames.toolsets import Toolsets

        self.limits: Mapping[str, int] = config.limits
        self._config = config
        self._store = store
        self._home = home
        self._routes = Routes(config, environ, store, home / "reaper")
        self.processes = self._reaper = ReaperProcesses(
            home / "reaper", term_grace_ms=self.limits["termGraceMs"], reap_ms=self.limits["reapMs"]
        )
        self.outputs = OutputFiles(home / "output", self.limits["processOutputBytes"])
        self._tools = Toolsets(config)
        self._sandboxes = Sandboxes(
            home,
            self._reaper,
            secret=[config_path(environ)],
            wanted=config.get("sandbox"),
            program=config.get("bubblewrap"),
            limits=self.limits,
        )

    def secrets(self) -> tuple[str, ...]:
        """Every key and other secret that is known now."""
        return self._routes.secrets()

    # --- snapshots ----------------------------------------------------------------------------------------

    def snapshot(self, wish: Mapping[str, Any]) -> dict[str, Any]:
        """See `ports.World.snapshot`."""
        workspace = real_directory(wish["workspace"], "workspace")
        cwd = real_cwd(workspace, wish.get("cwd"))
        mode = wish.get("mode", "default")
        route = self._route(wish.get("model"), strict=mode == "strict")
        found = os.stat(workspace)
        limits: dict[str, Any] = {name: self.limits[name] for name in (*TURN_LIMITS, *SESSION_LIMITS)}
        if mode == "strict":
            limits["loopRepeats"] = 0  # nothing is said to the model that the caller did not say
        limits.update(wish.get("limits", {}))
        compaction = wish.get("context", {}).get("compaction", "auto" if mode == "default" else "manual")
        sandbox = self._sandboxes.choose(wish)
        optional = ("cwd", "model", "mode", "limits", "context", "instructions", "tools", "sandbox", "network")
        snapshot: dict[str, Any] = {
            "version": SNAPSHOT_VERSION,
            "workspace": {"path": workspace, "device": found.st_dev, "inode": found.st_ino},
            "cwd": cwd,
            "mode": mode,
            "model": route,
            "tools": self._tools.choose(wish, route, network=sandbox["network"] != "disabled"),
            "sandbox": sandbox,
            "limits": limits,
            "context": {"compaction": compaction},
            "defaults": [name for name in optional if name not in wish],
            "assurance": {"reduced": sorted(name for name, held in sandbox["guarantees"].items() if held != "yes")},
        }
        if "instructions" in wish:
            snapshot["instructions"] = wish["instructions"]
        if "attribution" in wish:
            snapshot["attribution"] = self._routes.attribution(wish["attribution"])
        return snapshot

    def _route(self, wanted: str | None, *, strict: bool) -> dict[str, Any]:
        if wanted is None and strict:
            raise Refused("invalid_config", "A strict session must name its `model`.", member="model")
        return self.route(wanted)

    def route(self, model: str | None) -> dict[str, Any]:
        """See `ports.World.route`; None is the configured model."""
        return self._routes.route(model)

    async def unlock(self, model: str | None) -> None:
        """See `ports.World.unlock`."""
        await self._routes.unlock(model)

    def provider(self, name: str | None) -> Provider:
        """See `ports.World.provider`."""
        return self._routes.provider(name)

    def facts(self, provider: str, model: str) -> ModelFacts | None:
        """See `ports.World.facts`."""
        return self._routes.facts(provider, model)

    def mismatches(self, snapshot: Mapping[str, Any]) -> list[Mismatch]:
        """See `ports.World.mismatches`."""
        from hames.ports import Mismatch

        found: list[Mismatch] = []
        recorded = snapshot["workspace"]
        path, inode = identity(recorded["path"])
        if path != recorded["path"]:
            found.append(Mismatch("workspace.path", recorded["path"], path))
        elif inode != recorded["inode"]:
            found.append(Mismatch("workspace.inode", recorded["inode"], inode))
        elif not os.path.isdir(snapshot["cwd"]):
            found.append(Mismatch("cwd", snapshot["cwd"], None))
        if missing := self._tools.missing(snapshot["tools"]):
            here = [name for name in snapshot["tools"] if name not in missing]
            found.append(Mismatch("tools", list(snapshot["tools"]), here))
        return found + self._sandboxes.mismatches(snapshot["sandbox"]) + self._routes.mismatches(snapshot["model"])

    # --- equipment ----------------------------------------------------------------------------------------

    def equip(self, session_id: str, snapshot: Mapping[str, Any]) -> Equipment:
        """See `ports.World.equip`."""
        from hames.core.catalog import ModelFacts, output_beside
        from hames.ports import Equipment
        from hames.providers import PROVIDERS

        sandbox = self._sandboxes.open(session_id, snapshot)
        name, model = snapshot["model"]["provider"], snapshot["model"]["model"]
        known = self.facts(name, model) or ModelFacts()
        window = self.limits["contextTokens"] or known.context_tokens
        output = output_beside(known.output_tokens, window, self.limits["compactPercent"])
        return Equipment(
            provider=self._routes.attributed(name, snapshot.get("attribution")),
            model=model,
            sandbox=sandbox,
            tools=tuple(self._redacted(tool) for tool in self._tools.open(snapshot["tools"])),
            assurance=self._sandboxes.assurance(snapshot),
            window_tokens=window,
            output_tokens=output if PROVIDERS[name].wants_output_limit else None,
            answer_tokens=known.output_tokens,
            prices=known.prices,
            cutoff=known.cutoff,
            images=known.images,
            hide=self.hide,
        )

    def hide(self, text: str) -> str:
        """`text` without any secret that is known now."""
        for secret in self.secrets():
            text = redact(text, secret)
        return text

    def _redacted(self, tool: Tool) -> Tool:
        """`tool`, which may come across our credential: the parent that started us has it too."""
        from hames.tools.redacted import HidingTool

        return HidingTool(tool, self.secrets)

    async def prove(self, backend: str | None) -> None:
        """See `ports.World.prove`."""
        await self._sandboxes.prove(backend)

    async def prepare(self) -> None:
        """See `ports.World.prepare`."""
        try:
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise HarnessFault(
                "store_unavailable",
                f"The store's directory {self._home} cannot be made: {error.strerror}. Set HAMES_HOME to one that can.",
                boundary="artifact_store",
                path=str(self._home),
            ) from error
        # A store that can only be read has no place for a reaper: the first command says so, reading goes on.
        with suppress(HarnessFault):
            await self.processes.start()

    async def check(self, dependency: str, snapshot: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """See `ports.World.check`."""
        if dependency == "workspace":
            assert snapshot is not None
            await self.unlock(snapshot["model"]["provider"])
            mismatches = self.mismatches(snapshot)
            if mismatches:
                names = ", ".join(mismatch.member for mismatch in mismatches)
                return {"status": "unavailable", "why": f"The world does not match the snapshot: {names}."}
            return {"status": "ok"}
        if dependency == "sandbox":
            await self.prepare()
            return await self._sandboxes.check(snapshot)
        name = None if snapshot is None else snapshot["model"]["provider"]
        await self.unlock(name)
        provider = self.provider(name)
        if provider.name == OFFLINE:
            return {"status": "degraded", "why": _offline_why(snapshot)}
        models = await provider.models()
        return {"status": "ok", "details": {"provider": provider.name, "models": len(models)}}

    async def aclose(self) -> None:
        """See `ports.World.aclose`."""
        await self._routes.aclose()
        await self.processes.aclose()


def _offline_why(snapshot: Mapping[str, Any] | None) -> str:
    if snapshot is None:
        return "No model is configured: scripted prompts only."
    return "This session uses the offline interpreter: scripted prompts only."
