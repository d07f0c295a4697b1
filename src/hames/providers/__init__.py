"""The providers by name: `PROVIDERS` is the table, one row an adapter.

Rule: importing this package imports no adapter. A factory imports its own when it is called, since only the one
that is configured is needed and start-up time matters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from hames.ports import Provider

__all__ = ["PROVIDERS", "ProviderSettings"]


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """What a configuration says of a provider; an adapter uses what it needs.

    `key_source` names where `api_key` comes from, `salt` is that of the installation's fingerprints.
    """

    base_url: str
    api_key: str | None
    key_source: str
    salt: bytes


class Factory(Protocol):
    """Makes a provider. Opens no connection."""

    def __call__(self, settings: ProviderSettings) -> Provider:
        """The provider that `settings` describe.

        Raises:
            Refused: the settings cannot be used (`invalid_config`).
        """
        ...


def _compatible(settings: ProviderSettings) -> Provider:
    from hames.providers.compatible import CompatibleProvider

    return CompatibleProvider(settings.base_url, settings.api_key, key_source=settings.key_source, salt=settings.salt)


def _offline(settings: ProviderSettings) -> Provider:
    from hames.providers.offline import OfflineProvider

    return OfflineProvider()


PROVIDERS: Mapping[str, Factory] = {"compatible": _compatible, "offline": _offline}
