"""The composition root: the only module that names adapters. Everything else gets them through ports.

`make_host` gives a server its parts; the store and the world behind it are made when a session is first asked
for, so that the handshake waits for none of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hames.config import SETTINGS, Config, about_store, about_transport, home_path
from hames.core.limits import TURN_LIMITS
from hames.core.redaction import worth_hiding
from hames.protocol.errors import HarnessFault, Refused
from hames.server.host import Host
from hames.workspace import identity, real_cwd, real_directory

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from hames.ports import Equipment, Mismatch, Provider, ReaperRecord, Store, Tool, World

SNAPSHOT_VERSION = 1
OFFLINE = "offline"

PROVIDER_TYPO = 0.8
"""How alike (difflib) to a provider's name what stands before the `/` of a model must be to be a typing error, and
not part of the model's name, as in `qwen/qwen3`."""


def make_host(
    config: Config,
    environ: Mapping[str, str],
    tasks: TaskGroup,
    *,
    home: Path | None = None,
    transport: str = "stdio",
    framing: str = "auto",
) -> Host:
    """The parts of a process, none of them opened. With `transport` `memory` the process is that of a program which
    embeds Hames: nothing of it is tuned."""
    home = home or home_path(environ)

    def make() -> tuple[Store, World]:
        worlds: list[LocalWorld] = []
        store = make_store(config, home, lambda: worlds[0].processes.record)
        worlds.append(LocalWorld(config, store, home))
        return store, worlds[0]

    limits = config.limits
    return Host(
        principal=principal(),
        limits=limits,
        make=make,
        about_store=lambda: about_store(home),
        about_parts=about_parts,
        preload=preload if transport == "stdio" else preload_sessions,
        preload_turns=preload_turns,
        transport={**about_transport(limits, framing), "kind": transport},
        tasks=tasks,
    )


def preload() -> None:
    """`preload_sessions`, in a process of our own."""
    give_memory_back()
    preload_sessions()


def preload_sessions() -> None:
    """Import and build what the first session and the first turn will need, so that neither waits for it."""
    from hames.protocol.validate import prepare_params

    for module in ("hames.engine.service", "hames.store", "apsw", "hames.sandbox.local", "hames.tools", "rfc8785"):
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


def preload_turns(provider: str) -> None:
    """The same for what the first turn needs of a model and of tools; after the session is answered, not beside it."""
    for module in ("jsonschema",) if provider == OFFLINE else ("httpx", "httpcore", "jsonschema"):
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
    from hames.providers import PROVIDERS
    from hames.sandbox.local import GUARANTEES
    from hames.tools import TOOLS

    return {
        "parentTools": [
            {
                "name": tool.spec.name,
                "description": tool.spec.description,
                "parameters": dict(tool.spec.parameters),
                "effect": tool.effect,
                "runs": "sandbox:local",
            }
            for tool in TOOLS
        ],
        "providers": [{"name": name} for name in PROVIDERS],
        "stores": [{"kind": "sqlite"}],
        "sandboxes": [
            {
                "name": "local",
                "contained": False,
                "networkPosture": "general",
                "guarantees": dict(GUARANTEES),
                "platform": sys.platform,
            }
        ],
    }


class LocalWorld:
    """The host as it is: configured providers, the local sandbox, every tool. Implements `ports.World`."""

    def __init__(self, config: Config, store: Store, home: Path) -> None:
        from hames.sandbox.process import ReaperProcesses

        self.limits: Mapping[str, int] = config.limits
        self._config = config
        self._store = store
        self._home = home
        self._providers: dict[str, Provider] = {}
        self.processes = self._reaper = ReaperProcesses(
            home / "reaper", term_grace_ms=self.limits["termGraceMs"], reap_ms=self.limits["reapMs"]
        )

    # --- snapshots ----------------------------------------------------------------------------------------

    def snapshot(self, wish: Mapping[str, Any]) -> dict[str, Any]:
        """See `ports.World.snapshot`."""
        from hames.sandbox.local import GUARANTEES
        from hames.tools import TOOLS

        workspace = real_directory(wish["workspace"], "workspace")
        cwd = real_cwd(workspace, wish.get("cwd"))
        mode = wish.get("mode", "default")
        route = self._route(wish.get("model"), strict=mode == "strict")
        found = os.stat(workspace)
        limits: dict[str, Any] = {name: self.limits[name] for name in TURN_LIMITS}
        limits.update(wish.get("limits", {}))
        compaction = wish.get("context", {}).get("compaction", "auto" if mode == "default" else "manual")
        optional = ("cwd", "model", "mode", "limits", "context", "instructions")
        snapshot: dict[str, Any] = {
            "version": SNAPSHOT_VERSION,
            "workspace": {"path": workspace, "device": found.st_dev, "inode": found.st_ino},
            "cwd": cwd,
            "mode": mode,
            "model": route,
            "tools": [tool.spec.name for tool in TOOLS],
            "sandbox": {"backend": "local", "guarantees": dict(GUARANTEES), "network": "general"},
            "limits": limits,
            "context": {"compaction": compaction},
            "defaults": [name for name in optional if name not in wish],
            "assurance": {"reduced": sorted(name for name, held in GUARANTEES.items() if held != "yes")},
        }
        if "instructions" in wish:
            snapshot["instructions"] = wish["instructions"]
        return snapshot

    def _route(self, wanted: str | None, *, strict: bool) -> dict[str, Any]:
        if wanted is None and strict:
            raise Refused("invalid_config", "A strict session must name its `model`.", member="model")
        return self.route(wanted if wanted is not None else self._default_model())

    def route(self, model: str) -> dict[str, Any]:
        """See `ports.World.route`."""
        name, model = self._named(model)
        return {**self.provider(name).route, "provider": name, "model": model}

    def _default_model(self) -> str:
        configured = self._config.get("model")
        if configured is not None:
            return str(configured)
        return "compatible" if self._config.get("providers.compatible.baseUrl") else OFFLINE

    def _named(self, text: str) -> tuple[str, str]:
        """`<provider>/<model>`, a provider, or a model of the provider of the configured model: both names."""
        from hames.providers import PROVIDERS

        name, _, model = text.partition("/")
        if name not in PROVIDERS:
            if get_close_matches(name.lower(), PROVIDERS, 1, PROVIDER_TYPO):
                known = ", ".join(PROVIDERS)
                message = f"There is no provider {name[:80]!r}; there are: {known}. Write `<provider>/<model>`."
                raise Refused("invalid_config", message, member="model")
            configured = str(self._config.get("model") or "").partition("/")[0]
            name, model = configured if configured in PROVIDERS and configured != OFFLINE else "compatible", text
        if name == OFFLINE:
            return OFFLINE, OFFLINE
        model = model or str(self._config.get(f"providers.{name}.model") or "")
        if not model:
            raise Refused(
                "invalid_config",
                f"No model is named: write `{name}/<model>` or set providers.{name}.model.",
                member="model",
            )
        return name, model

    def provider(self, name: str | None) -> Provider:
        """See `ports.World.provider`."""
        from hames.providers import PROVIDERS, ProviderSettings

        name = name if name is not None else self._named(self._default_model())[0]
        if name not in PROVIDERS:
            known = ", ".join(PROVIDERS)
            raise Refused("capability_unavailable", f"There is no provider {name[:80]!r}; there are: {known}.")
        if name not in self._providers:
            row, key_setting = PROVIDERS[name], f"providers.{name}.apiKey"
            base_url = str(self._config.get(f"providers.{name}.baseUrl") or row.base_url or "")
            if row.is_remote and not base_url:
                raise Refused(
                    "invalid_config",
                    f"The provider {name} has no address: set providers.{name}.baseUrl, or use `offline`.",
                    setting=f"providers.{name}.baseUrl",
                )
            key = self._config.get(key_setting)
            if row.needs_key and not key:
                variables = " or ".join((SETTINGS[key_setting].environment, *row.key_variables))
                raise Refused(
                    "credential_missing",
                    f"The provider {name} wants a key: set {variables}, or run: hames config set {key_setting} -",
                    setting=key_setting,
                )
            salt = bytes.fromhex(self._store.keyed("credential-salt"))
            source = self._config.sources.get(key_setting, "none")
            self._providers[name] = row.make(
                ProviderSettings(
                    base_url=base_url,
                    api_key=key,
                    key_source=source,
                    salt=salt,
                    server=self._config.get(f"providers.{name}.server"),
                )
            )
        return self._providers[name]

    def mismatches(self, snapshot: Mapping[str, Any]) -> list[Mismatch]:
        """See `ports.World.mismatches`."""
        from hames.ports import Mismatch
        from hames.sandbox.local import GUARANTEES
        from hames.tools import TOOLS

        found: list[Mismatch] = []
        recorded = snapshot["workspace"]
        path, inode = identity(recorded["path"])
        if path != recorded["path"]:
            found.append(Mismatch("workspace.path", recorded["path"], path))
        elif inode != recorded["inode"]:
            found.append(Mismatch("workspace.inode", recorded["inode"], inode))
        elif not os.path.isdir(snapshot["cwd"]):
            found.append(Mismatch("cwd", snapshot["cwd"], None))
        missing = sorted(set(snapshot["tools"]) - {tool.spec.name for tool in TOOLS})
        if missing:
            found.append(Mismatch("tools", list(snapshot["tools"]), [tool.spec.name for tool in TOOLS]))
        guarantees = snapshot["sandbox"].get("guarantees", {})
        worse = {n: GUARANTEES.get(n) for n, held in guarantees.items() if held == "yes" and GUARANTEES.get(n) != held}
        if worse:
            found.append(Mismatch("sandbox.guarantees", {name: guarantees[name] for name in worse}, worse))
        return found + self._route_mismatches(snapshot["model"])

    def _route_mismatches(self, recorded: Mapping[str, Any]) -> list[Mismatch]:
        from hames.ports import Mismatch

        try:
            route = self.provider(recorded["provider"]).route
        except Refused as refused:
            return [Mismatch("model.provider", recorded["provider"], refused.message)]
        return [
            Mismatch(f"model.{member}", recorded.get(member), route.get(member))
            for member in ("baseUrl", "credential")
            if _compared(member, recorded) != _compared(member, route)
        ]

    # --- equipment ----------------------------------------------------------------------------------------

    def equip(self, session_id: str, snapshot: Mapping[str, Any]) -> Equipment:
        """See `ports.World.equip`."""
        from hames.ports import Equipment
        from hames.sandbox.local import LocalSandbox
        from hames.tools import TOOLS

        sandbox = LocalSandbox(
            Path(snapshot["workspace"]["path"]),
            Path(snapshot["cwd"]),
            session_id,
            self._reaper,
            reserved=[self._home],
        )
        allowed = set(snapshot["tools"])
        return Equipment(
            provider=self.provider(snapshot["model"]["provider"]),
            model=snapshot["model"]["model"],
            sandbox=sandbox,
            tools=tuple(self._redacted(tool) for tool in TOOLS if tool.spec.name in allowed),
            assurance=snapshot["assurance"],
            window_tokens=self.limits["contextTokens"] or None,
        )

    def _redacted(self, tool: Tool) -> Tool:
        """`tool`, which may come across our credential: the parent that started us has it too."""
        from hames.tools.redacted import RedactedTool

        for name in SETTINGS:
            if SETTINGS[name].secret and (secret := worth_hiding(self._config.get(name))):
                tool = RedactedTool(tool, secret.strip())
        return tool

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
            mismatches = self.mismatches(snapshot)
            if mismatches:
                names = ", ".join(mismatch.member for mismatch in mismatches)
                return {"status": "unavailable", "why": f"The world does not match the snapshot: {names}."}
            return {"status": "ok"}
        if dependency == "sandbox":
            await self.prepare()
            why = "Commands run unconfined on this host: see `sandboxes` in capabilities/describe."
            return {"status": "degraded", "why": why, "details": {"backend": "local"}}
        provider = self.provider(None if snapshot is None else snapshot["model"]["provider"])
        if provider.name == OFFLINE:
            return {"status": "degraded", "why": _offline_why(snapshot)}
        models = await provider.models()
        return {"status": "ok", "details": {"provider": provider.name, "models": len(models)}}

    async def aclose(self) -> None:
        """See `ports.World.aclose`."""
        for provider in self._providers.values():
            await provider.aclose()
        await self.processes.aclose()


def _offline_why(snapshot: Mapping[str, Any] | None) -> str:
    if snapshot is None:
        return "No model is configured: scripted prompts only."
    return "This session uses the offline interpreter: scripted prompts only."


def _compared(member: str, route: Mapping[str, Any]) -> Any:
    """What must be equal of a route: of a credential, which one it is and not where it was found."""
    return route.get(member) if member != "credential" else (route.get(member) or {}).get("fingerprint")
