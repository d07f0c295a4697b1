"""The providers by name: `PROVIDERS` is the table, one row an adapter.

Rule: importing this package imports no adapter, and nothing else that takes time. A row imports its adapter when it
is called, since only the one that is configured is needed and start-up time matters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hames.ports import Provider
    from hames.providers.http_provider import Dialect

__all__ = ["PROVIDERS", "ProviderRow", "ProviderSettings"]


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """What a configuration says of a provider; an adapter uses what it needs.

    `key_source` names where `api_key` comes from, `salt` is that of the installation's fingerprints.
    """

    base_url: str
    api_key: str | None
    key_source: str
    salt: bytes


@dataclass(frozen=True, slots=True)
class ProviderRow:
    """One provider. `make` opens no connection, and raises `Refused` (`invalid_config`) for settings of no use.

    `base_url` is the vendor's own, None where there is none to assume. `key_variables` are the environment variables
    that the vendor's own programs read the key from, first found first; `needs_key`: it answers nobody without one.
    """

    meaning: str
    make: Callable[[ProviderSettings], Provider]
    base_url: str | None = None
    key_variables: tuple[str, ...] = ()
    needs_key: bool = False
    is_remote: bool = True


def _http(dialect: Dialect, settings: ProviderSettings) -> Provider:
    from hames.providers.http_provider import HttpProvider

    return HttpProvider(
        dialect, settings.base_url, settings.api_key, key_source=settings.key_source, salt=settings.salt
    )


def _compatible(settings: ProviderSettings) -> Provider:
    from hames.providers.compatible import Compatible

    return _http(Compatible(), settings)


def _offline(settings: ProviderSettings) -> Provider:
    from hames.providers.offline import OfflineProvider

    return OfflineProvider()


PROVIDERS: Mapping[str, ProviderRow] = {
    "compatible": ProviderRow("a server that speaks Chat Completions, like http://127.0.0.1:8080/v1", _compatible),
    "offline": ProviderRow("plays scripts, for trying things out", _offline, is_remote=False),
}
