"""What a run says of what nobody typed: which model is taken where none is named, where commands run, and which limits
do not hold. Pure.

Rule: of a key it is told that it is there, and for whom.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hames.config import SETTINGS, Config
from hames.core.limits import DEFAULTS, NO_COST_LIMIT, TURN_LIMITS
from hames.naming import OFFLINE
from hames.providers import PROVIDERS

LIMIT_OPTIONS: Mapping[str, str] = {"steps": "--steps", "wallTimeMs": "--timeout-ms", "costMicros": "--cost-micros"}
"""What a person types for a limit of a turn."""

_WITHOUT: Mapping[str, int] = {"costMicros": NO_COST_LIMIT}
"""Values that bound nothing."""


def unnamed_model(route: Mapping[str, Any], config: Config) -> str:
    """Which model was taken because none is named, and how to name one where a key is waiting for it."""
    if route["provider"] != OFFLINE:
        return f"no model is configured: {route['model']} at {route.get('baseUrl')} is used"
    told = "no model is configured: this is the offline interpreter; see `hames config list`"
    return "\n".join([told, *(_with_key(name, config) for name in keyed(config))])


def keyed(config: Config) -> list[str]:
    """The providers that have a key."""
    remote = [name for name, row in PROVIDERS.items() if row.is_remote]
    return [
        name for name in remote if any(config.get(f"providers.{name}.{each}") for each in ("apiKey", "apiKeyCommand"))
    ]


def _with_key(name: str, config: Config) -> str:
    setting = f"providers.{name}.apiKey"
    origin = " in the environment" if config.sources.get(setting) == "environment" else ""
    return (
        f"there is a key for {name}{origin}: `--model {name}/<model>` uses it, or `hames config set model "
        f"{name}/<model>`; `hames models {name}` lists what there is"
    )


def sandbox_in_force(config: Config, backend: str, *, is_new: bool) -> list[str]:
    """Where the session's commands run, if that is not what is configured by name."""
    wanted = config.get("sandbox")
    if wanted in (None, backend):
        return []
    if is_new:
        return [f"sandbox {wanted}: {backend} is used" + (", which confines nothing" if backend == "local" else "")]
    if wanted == "auto":
        return []
    origin = "HAMES_SANDBOX" if config.sources.get("sandbox") == "environment" else "sandbox of the file"
    return [f"{origin} ({wanted}) does not change this session, whose commands run in {backend}: begin a new one"]


def limits_that_do_not_hold(config: Config, session: Mapping[str, int], turn: Mapping[str, int]) -> list[str]:
    """Configured limits that are below those an older session was made with, and so do not bound its turns; `turn` are
    those that this turn asks for itself."""
    return [
        _not_held(name, config, had)
        for name in TURN_LIMITS
        # Of equal rounds, none is no bound at all.
        if name != "loopRepeats" and name not in turn and f"limits.{name}" in config.values
        if config.limits[name] < (had := session.get(name, DEFAULTS[name]))
    ]


def _not_held(name: str, config: Config, had: int) -> str:
    setting = f"limits.{name}"
    origin = SETTINGS[setting].environment if config.sources[setting] == "environment" else f"{setting} of the file"
    made = "without that limit" if had == _WITHOUT.get(name) else f"with {had}"
    option = LIMIT_OPTIONS.get(name)
    advice = f"`{option} {config.limits[name]}` bounds this turn" if option else "`turn/submit` takes it in `limits`"
    return f"{origin} ({config.limits[name]}) does not bound this session, which was made {made}: {advice}"
