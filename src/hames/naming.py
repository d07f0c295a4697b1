"""Which provider and which model a name means, by the configuration; nobody is asked.

Rule: what stands before the first `/` is a provider where there is one of that name, a typing error of one where it
looks like that, and else a part of the model's name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hames.protocol.errors import Refused
from hames.providers import PROVIDERS
from hames.values import SHOWN_CHARS, misspelt_provider

if TYPE_CHECKING:
    from hames.config import Config

OFFLINE: Final = "offline"


def default_model(config: Config) -> str:
    """The name that is taken where none is given."""
    configured = config.get("model")
    if configured is not None:
        return str(configured)
    return "compatible" if config.get("providers.compatible.baseUrl") else OFFLINE


def model_named(config: Config, text: str) -> tuple[str, str]:
    """`<provider>/<model>`, a provider, or a model of the provider of the configured model: both names.

    Raises:
        Refused: `invalid_config`: it is none of these, or only a provider whose model is not configured.
    """
    name, model = provider_named(config, text)
    if name == OFFLINE:
        return OFFLINE, OFFLINE
    model = model or str(config.get(f"providers.{name}.model") or "")
    if not model:
        raise Refused(
            "invalid_config",
            f"No model is named: write `{name}/<model>` or set providers.{name}.model. "
            f"`hames models {name}` lists what it has.",
            member="model",
        )
    return name, model


def provider_named(config: Config, text: str) -> tuple[str, str]:
    """The same; the name of the model is empty where only a provider is named.

    Raises:
        Refused: `invalid_config`.
    """
    name, _, model = text.partition("/")
    if name in PROVIDERS:
        return name, model
    if (wrong := misspelt_provider(text)) is not None:
        raise Refused("invalid_config", f"{wrong}. Write `<provider>/<model>`.", member="model")
    configured = str(config.get("model") or "").partition("/")[0]
    if configured in PROVIDERS and configured != OFFLINE:
        return configured, text
    if not config.get("providers.compatible.baseUrl") and (vendor := _vendor_of(text)) is not None:
        meant = f"{vendor}/{text.rpartition('/')[2]}"[:SHOWN_CHARS]
        message = f"No provider is named with the model {text[:SHOWN_CHARS]!r}: did you mean `{meant}`?"
        raise Refused("invalid_config", message, member="model")
    return "compatible", text


def _vendor_of(model: str) -> str | None:
    """The provider that sells a model of this name, as far as this build knows."""
    from hames.catalog import KnownModels

    known = KnownModels(None)
    for name, row in PROVIDERS.items():
        facts = known.facts(row.base_url, model) if row.base_url else None
        if facts is not None and facts.prices is not None:
            return name
    return None
