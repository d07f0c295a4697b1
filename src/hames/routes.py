"""Where models are asked: at which address, with which key, and for whom; `naming.py` says which model a name means.

Rule 1: a provider is made once, when it is first needed, and opens no connection then.
Rule 2: what a session was bound to is compared member by member before anything is sent (AH-INT-4).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hames.naming import OFFLINE, default_model, model_named, provider_named
from hames.protocol.errors import Refused

if TYPE_CHECKING:
    from pathlib import Path

    from hames.catalog import KnownModels
    from hames.config import Config
    from hames.core.catalog import ModelFacts
    from hames.ports import Mismatch, Provider, Store


class Routes:
    """The providers of this process as they are configured. `environ` is what a program that prints a key gets,
    `reapers` the directory for the socket of what runs it."""

    def __init__(self, config: Config, environ: Mapping[str, str], store: Store, reapers: Path) -> None:
        from hames.credentials import Keys

        self._config = config
        self._store = store
        self._keys = Keys(config, environ, reapers)
        self._providers: dict[str, Provider] = {}
        self._models: KnownModels | None = None

    def secrets(self) -> tuple[str, ...]:
        """Every key and other secret that is known now."""
        return self._keys.secrets()

    def route(self, model: str | None) -> dict[str, Any]:
        """The route of a model, as a snapshot has it; None is the configured model.

        Raises:
            Refused: `invalid_config`, `credential_missing`.
        """
        name, model = model_named(self._config, model if model is not None else default_model(self._config))
        route = {**self.provider(name).route, "provider": name, "model": model}
        self.facts(name, model)  # a file of models that is not good is refused now, not in mid-turn
        return route

    async def unlock(self, model: str | None) -> None:
        """See `ports.World.unlock`."""
        try:
            name, _ = provider_named(self._config, model if model is not None else default_model(self._config))
        except Refused:
            return  # a name of nothing: who is asked for it next says so, in words of its own
        await self._keys.unlock(name)

    def provider(self, name: str | None) -> Provider:
        """See `ports.World.provider`."""
        from hames.providers import PROVIDERS, ProviderSettings

        name = name if name is not None else provider_named(self._config, default_model(self._config))[0]
        if name not in PROVIDERS:
            known = ", ".join(PROVIDERS)
            raise Refused("capability_unavailable", f"There is no provider {name[:80]!r}; there are: {known}.")
        if name not in self._providers:
            row = PROVIDERS[name]
            base_url = str(self._config.get(f"providers.{name}.baseUrl") or row.base_url or "")
            if row.is_remote and not base_url:
                raise Refused(
                    "invalid_config",
                    f"The provider {name} has no address: set providers.{name}.baseUrl, or use `offline`.",
                    setting=f"providers.{name}.baseUrl",
                )
            key, source = self._keys.key(name)
            self._providers[name] = row.make(
                ProviderSettings(
                    base_url=base_url,
                    api_key=key,
                    key_source=source,
                    salt=bytes.fromhex(self._store.keyed("credential-salt")),
                    server=self._config.get(f"providers.{name}.server"),
                    owner=self._config.get(f"providers.{name}.owner"),
                )
            )
        return self._providers[name]

    def facts(self, provider: str, model: str) -> ModelFacts | None:
        """See `ports.World.facts`."""
        if provider == OFFLINE:
            return None
        if self._models is None:
            from hames.catalog import KnownModels

            self._models = KnownModels(self._config.get("modelsFile"))
        return self._models.facts(self.provider(provider).route.get("baseUrl"), model)

    def mismatches(self, recorded: Mapping[str, Any]) -> list[Mismatch]:
        """Where a recorded route is not that of now."""
        from hames.ports import Mismatch

        try:
            route = self.provider(recorded["provider"]).route
        except Refused as refused:
            return [Mismatch("model.provider", recorded["provider"], refused.message)]
        return [
            Mismatch(f"model.{member}", recorded.get(member), route.get(member))
            for member in ("baseUrl", "credential")
            if not _agree(member, recorded.get(member), route.get(member))
        ]

    def attribution(self, wish: Mapping[str, str]) -> dict[str, str]:
        """The attribution of a new session.

        Raises:
            Refused: `invalid_config`: a key is in it.
        """
        leak = next((name for name in wish if any(secret in wish[name] for secret in self.secrets())), None)
        if leak is not None:
            message = f"attribution.{leak} holds a key of the configuration: it is sent to providers and kept."
            raise Refused("invalid_config", message, member=f"attribution.{leak}")
        return dict(wish)

    def attributed(self, name: str, attribution: Mapping[str, str] | None) -> Provider:
        """A provider, as a session with this attribution asks it."""
        provider = self.provider(name)
        if not attribution:
            return provider
        from hames.providers.attributed import Attributed
        from hames.providers.http_provider import HttpProvider

        return Attributed(provider, attribution) if isinstance(provider, HttpProvider) else provider

    async def aclose(self) -> None:
        """Close connections."""
        for provider in self._providers.values():
            await provider.aclose()


def _agree(member: str, recorded: Any, found: Any) -> bool:
    """Whether a member of a route is as it was recorded: of a credential which one it is, and whose it was said to be
    (AH-ART-4), and not where it was found."""
    if member != "credential":
        return bool(recorded == found)
    was, now = recorded or {}, found or {}
    return was.get("fingerprint") == now.get("fingerprint") and was.get("owner") in (None, now.get("owner"))
