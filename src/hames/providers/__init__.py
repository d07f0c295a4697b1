"""The providers by name: `PROVIDERS` is the table, one row an adapter.

Rule: importing this package imports no adapter, and nothing else that takes time. A row imports its adapter when it
is called, since only the one that is configured is needed and start-up time matters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from hames.core.records import record

if TYPE_CHECKING:
    from hames.ports import Provider
    from hames.providers.http_provider import Dialect

__all__ = ["PROVIDERS", "ProviderRow", "ProviderSettings"]


@record
class ProviderSettings:
    """What a configuration says of a provider; an adapter uses what it needs.

    `key_source` names where `api_key` comes from, `salt` is that of the installation's fingerprints. `server` names
    the server of Chat Completions, None where its address tells it. `owner` is whom the key is said to be of.
    """

    base_url: str
    api_key: str | None
    key_source: str
    salt: bytes
    server: str | None = None
    owner: str | None = None


@record
class ProviderRow:
    """One provider. `make` opens no connection, and raises `Refused` (`invalid_config`) for settings of no use.

    `base_url` is the vendor's own, None where there is none to assume. `key_variables` are the environment variables
    that the vendor's own programs read the key from, first found first; `needs_key`: it answers nobody without one.
    `wants_output_limit`: a request must say how long its answer may get.
    """

    meaning: str
    make: Callable[[ProviderSettings], Provider]
    base_url: str | None = None
    key_variables: tuple[str, ...] = ()
    needs_key: bool = False
    wants_output_limit: bool = False
    is_remote: bool = True


def _http(dialect: Dialect, settings: ProviderSettings) -> Provider:
    from hames.providers.http_provider import HttpProvider

    return HttpProvider(
        dialect,
        settings.base_url,
        settings.api_key,
        key_source=settings.key_source,
        salt=settings.salt,
        owner=settings.owner,
    )


def _compatible(settings: ProviderSettings) -> Provider:
    from hames.protocol.errors import Refused
    from hames.providers.chat_quirks import SERVERS, quirks_of
    from hames.providers.compatible import Compatible

    if settings.server is not None and settings.server not in SERVERS:
        known = ", ".join(SERVERS)
        raise Refused("invalid_config", f"There is no server {settings.server[:80]!r}; there are: {known}.")
    return _http(Compatible(quirks_of(settings.base_url, settings.server)), settings)


def _openai(settings: ProviderSettings) -> Provider:
    from hames.providers.openai import OpenAI

    return _http(OpenAI(), settings)


def _gemini(settings: ProviderSettings) -> Provider:
    from hames.providers.gemini import Gemini

    return _http(Gemini(), settings)


def _anthropic(settings: ProviderSettings) -> Provider:
    from hames.providers.anthropic import Anthropic

    return _http(Anthropic(), settings)


def _offline(settings: ProviderSettings) -> Provider:
    from hames.providers.offline import OfflineProvider

    return OfflineProvider()


PROVIDERS: Mapping[str, ProviderRow] = {
    "compatible": ProviderRow("a server that speaks Chat Completions, like http://127.0.0.1:8080/v1", _compatible),
    "anthropic": ProviderRow(
        "Claude, by Anthropic's Messages API",
        _anthropic,
        base_url="https://api.anthropic.com/v1",
        key_variables=("ANTHROPIC_API_KEY",),
        needs_key=True,
        wants_output_limit=True,
    ),
    "openai": ProviderRow(
        "the models of OpenAI, by its Responses API",
        _openai,
        base_url="https://api.openai.com/v1",
        key_variables=("OPENAI_API_KEY",),
        needs_key=True,
    ),
    "gemini": ProviderRow(
        "the models of Google, by its Gemini API",
        _gemini,
        base_url="https://generativelanguage.googleapis.com/v1beta",
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        needs_key=True,
    ),
    "offline": ProviderRow("plays scripts, for trying things out", _offline, is_remote=False),
}
