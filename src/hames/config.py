"""Configuration: where it lives, what it holds, what wins. Checked whole before anything uses it.

The environment wins over the file, the file over the defaults. The file is JSON, 0600, in
`$HAMES_CONFIG`, else `$XDG_CONFIG_HOME/hames/config.json`, else `~/.config/hames/config.json`. Nothing in a
workspace is read: a project cannot widen what its sessions may do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hames.core.limits import DEFAULTS, LIMITS, check_limit
from hames.core.records import record
from hames.protocol.errors import Refused
from hames.protocol.jsontext import dumps, loads
from hames.providers import PROVIDERS, ProviderRow
from hames.telemetry.settings import checked as checked_telemetry
from hames.values import OWNER_CHARS, check_text


@record
class Setting:
    """A setting: the environment variable that wins over the file, whether it is secret, its meaning.

    `fallbacks` are variables of others that are looked at where neither ours nor the file has a value. `choices` are
    all that it may be, where that is not any text.
    """

    environment: str
    meaning: str
    secret: bool = False
    fallbacks: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()


def _settings_of(name: str, row: ProviderRow) -> Mapping[str, Setting]:
    variable = f"HAMES_{name.upper()}"
    address = f"default {row.base_url}" if row.base_url else row.meaning
    return {
        f"providers.{name}.baseUrl": Setting(f"{variable}_BASE_URL", f"base URL: {address}"),
        f"providers.{name}.apiKey": Setting(
            f"{variable}_API_KEY",
            "its key" if row.needs_key else "its key, if it wants one",
            secret=True,
            fallbacks=row.key_variables,
        ),
        f"providers.{name}.model": Setting(f"{variable}_MODEL", "its model when only the provider is named"),
        f"providers.{name}.apiKeyCommand": Setting(
            f"{variable}_API_KEY_COMMAND", "program and arguments, without a shell; prints its key where none is set"
        ),
        f"providers.{name}.owner": Setting(
            f"{variable}_OWNER", f"who pays with its key, as sessions shall name them; at most {OWNER_CHARS} characters"
        ),
    }


SANDBOXES = ("local", "contained", "landlock", "auto")
"""As `sandbox` in the params of `session/create`."""

SETTINGS: Mapping[str, Setting] = {
    "model": Setting("HAMES_MODEL", "model of new sessions: `<provider>/<model>` or `offline`"),
    **{
        name: setting
        for provider, row in PROVIDERS.items()
        if row.is_remote
        for name, setting in _settings_of(provider, row).items()
    },
    "sandbox": Setting(
        "HAMES_SANDBOX",
        "sandbox of new sessions: local, contained, landlock or auto, default local",
        choices=SANDBOXES,
    ),
    "bubblewrap": Setting("HAMES_BUBBLEWRAP", "absolute path of `bwrap`, where it is not in its usual place"),
    "modelsFile": Setting("HAMES_MODELS_FILE", "absolute path of a JSON file of models, which wins over our own"),
    "providers.compatible.server": Setting(
        "HAMES_COMPATIBLE_SERVER", "what it is, where its address does not tell: llama.cpp, ollama, vllm, …"
    ),
    "tools.webFetch.privateAddresses": Setting(
        "HAMES_WEB_FETCH_PRIVATE_ADDRESSES",
        "`allow` lets web_fetch reach this machine and its networks; default `refuse`",
        choices=("refuse", "allow"),
    ),
    "tools.webSearch.apiKey": Setting(
        "HAMES_BRAVE_API_KEY",
        "key of Brave Search: with it there is web_search",
        secret=True,
        fallbacks=("BRAVE_API_KEY",),
    ),
    "tools.webSearch.baseUrl": Setting(
        "HAMES_BRAVE_BASE_URL", "base URL of Brave Search: default https://api.search.brave.com"
    ),
    "telemetry.endpoint": Setting(
        "HAMES_TELEMETRY_ENDPOINT",
        "base URL of an OpenTelemetry collector (OTLP/HTTP with JSON), to which spans are sent",
        fallbacks=("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"),
    ),
    "telemetry.enabled": Setting(
        "HAMES_TELEMETRY_ENABLED",
        "false: send none; true: also to OTEL_EXPORTER_OTLP_ENDPOINT of the environment",
        choices=("true", "false"),
    ),
    "telemetry.content": Setting(
        "HAMES_TELEMETRY_CONTENT",
        "true: with prompts, answers, arguments and results, redacted; default false",
        choices=("true", "false"),
    ),
    "telemetry.headers": Setting(
        "HAMES_TELEMETRY_HEADERS",
        "headers for the collector: name=value,…",
        secret=True,
        fallbacks=("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"),
    ),
    **{
        f"limits.{name}": Setting(
            "HAMES_LIMIT_" + re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper(), f"{limit.meaning}, default {limit.default}"
        )
        for name, limit in LIMITS.items()
    },
}


OTHER_VARIABLES = ("HAMES_HOME", "HAMES_CONFIG", "HAMES_SESSION", "HAMES_CALL")
"""Variables that are no settings: where things are, and what a command of a session is told."""


@record
class Config:
    """Values by setting, and where each came from (`environment`, `file`)."""

    values: Mapping[str, Any]
    sources: Mapping[str, str]

    def get(self, name: str) -> Any:
        """The value of a setting, None when it is not set."""
        return self.values.get(name)

    def provider_url(self, name: str) -> str | None:
        """Where a provider is, None for one that cannot be used: no address, or no key where it needs one."""
        row = PROVIDERS[name]
        keys = (f"providers.{name}.apiKey", f"providers.{name}.apiKeyCommand")
        if not row.is_remote or (row.needs_key and not any(map(self.get, keys))):
            return None
        return self.get(f"providers.{name}.baseUrl") or row.base_url

    @property
    def limits(self) -> dict[str, int]:
        """Every limit, configured or default."""
        return {name: self.values.get(f"limits.{name}", DEFAULTS[name]) for name in LIMITS}


def config_path(environ: Mapping[str, str]) -> Path:
    """The configuration file."""
    if "HAMES_CONFIG" in environ:
        return Path(environ["HAMES_CONFIG"])
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".config")
    return Path(base) / "hames" / "config.json"


def home_path(environ: Mapping[str, str]) -> Path:
    """Where the store lives: `$HAMES_HOME`, else the platform's state directory."""
    if environ.get("HAMES_HOME"):
        return Path(environ["HAMES_HOME"])
    home = environ.get("HOME") or os.path.expanduser("~")
    return Path(environ.get("XDG_STATE_HOME") or os.path.join(home, ".local", "state")) / "hames"


def about_store(home: Path) -> dict[str, Any]:
    """For `initialize`, without opening it."""
    return {"kind": "sqlite", "path": str(home), "durability": "synchronous=FULL"}


def about_transport(limits: Mapping[str, int], framing: str) -> dict[str, Any]:
    """For `initialize`: how frames come."""
    return {"kind": "stdio", "framing": framing, "frameInBytes": limits["frameInBytes"]}


def load_config(environ: Mapping[str, str]) -> Config:
    """The configuration in force.

    Raises:
        Refused: `invalid_config`, naming the setting, where it stands, what it holds and what it may hold.
    """
    config, faults = look_at_config(environ)
    if faults:
        raise faults[0]
    return config


def look_at_config(environ: Mapping[str, str]) -> tuple[Config, list[Refused]]:
    """The configuration as far as it can be used, and what is wrong with the rest, for who shows or mends it.

    Raises:
        Refused: `invalid_config`: the file cannot be read at all.
    """
    path = config_path(environ)
    found = [
        (name, value, "file", f" It stands in {path}; `hames config unset {name}` takes it out.")
        for name, value in read_file(path).items()
    ]
    found += [
        (name, environ[setting.environment], "environment", f" It is {setting.environment} of the environment.")
        for name, setting in SETTINGS.items()
        if setting.environment in environ
    ]
    found = _with_fallbacks(found, environ)
    home = str(home_path(environ))
    if home != home.encode("utf-8", "replace").decode():
        message = f"The store's directory {home!r} is not UTF-8: set HAMES_HOME to one that is."
        raise Refused("invalid_config", message, setting="HAMES_HOME")
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    faults: list[Refused] = []
    for name, value, source, place in found:
        inner = [known for known in SETTINGS if known.startswith(f"{name}.")] if isinstance(value, dict) else []
        if inner:
            message = f'The settings in {path} are flat: write "{inner[0]}" with its value, not an object {name!r}.'
            faults.append(Refused("invalid_config", message, setting=name))
            continue
        try:
            values[name] = check_setting(name, value)
            sources[name] = source
        except Refused as error:
            faults.append(Refused("invalid_config", error.message + place, **error.details))
    _keep_keys_at_home(found, values, sources)
    return Config(values, sources), faults


def _with_fallbacks(
    found: list[tuple[str, Any, str, str]], environ: Mapping[str, str]
) -> list[tuple[str, Any, str, str]]:
    """`found`, and before it what others' variables say of settings that it does not have."""
    known = {name: value for name, value, _, _ in found}
    # Programs that have nothing to do with Hames are told of a collector by these, and its headers are for it alone.
    wanted = "telemetry.endpoint" not in known and str(known.get("telemetry.enabled")).lower() == "true"
    told = []
    for name, setting in SETTINGS.items():
        if name.startswith("telemetry.") and not wanted:
            continue
        variable = next((each for each in setting.fallbacks if environ.get(each, "").strip()), None)
        if variable is not None and name not in known:
            told.append((name, environ[variable], "environment", f" It is {variable} of the environment."))
    return told + found


def _keep_keys_at_home(
    found: Iterable[tuple[str, Any, str, str]], values: dict[str, Any], sources: dict[str, str]
) -> None:
    """Forget a key, or the way to it, that stands in the file beside another address than the one in force: it was
    given for that one."""
    in_file = {name: value for name, value, source, _ in found if source == "file"}
    keys = (".apiKey", ".apiKeyCommand", "telemetry.headers")
    for name in [name for name in values if name.endswith(keys) and sources[name] == "file"]:
        address = name.rpartition(".")[0] + (".endpoint" if name == "telemetry.headers" else ".baseUrl")
        if address in in_file and in_file[address] != values.get(address):
            del values[name], sources[name]


def secret_variables() -> tuple[str, ...]:
    """The variables of the environment that hold keys."""
    secret = [setting for setting in SETTINGS.values() if setting.secret]
    return tuple(name for setting in secret for name in (setting.environment, *setting.fallbacks))


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """What to tell of variables that look like settings and are none, so that a typing error is not taken for one."""
    known = [*(setting.environment for setting in SETTINGS.values()), *OTHER_VARIABLES]
    told = []
    for name in sorted(name for name in environ if name.startswith("HAMES_") and name not in known):
        close = get_close_matches(name, known, 1)
        told.append(f"{name[:80]} is not a setting and is ignored." + (f" Did you mean {close[0]}?" if close else ""))
    return told


def read_file(path: Path) -> dict[str, Any]:
    """The settings in a file, flat; none when there is no file."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Refused("invalid_config", f"{path} cannot be read: {error.strerror}.", path=str(path)) from error
    try:
        value = loads(raw)
    except ValueError as error:
        raise Refused("invalid_config", f"{path} is not JSON: {error}.", path=str(path)) from error
    if not isinstance(value, dict):
        raise Refused("invalid_config", f"{path} must hold a JSON object.", path=str(path))
    return value


def check_setting(name: str, value: Any) -> Any:
    """`value` as the setting `name`; text from a command line or the environment becomes what the setting wants.

    Raises:
        Refused: `invalid_config`.
    """
    if name not in SETTINGS:
        close = [known for known in SETTINGS if name.lower().replace("_", "") in known.lower()][:3]
        close = close or get_close_matches(name, SETTINGS, 1)
        hint = f" Did you mean {', '.join(close)}?" if close else " `hames config list` shows them all."
        raise Refused("invalid_config", f"There is no setting {name!r}.{hint}", setting=name)
    if name.startswith("limits."):
        number: Any = value
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,15}", value):
            number = int(value)
        try:
            return check_limit(name.removeprefix("limits."), number)
        except ValueError as error:
            raise Refused("invalid_config", f"{name} {error}.", setting=name) from error
    if name.startswith("telemetry.") and isinstance(value, bool):
        value = str(value).lower()
    if not isinstance(value, str) or not value.strip():
        raise Refused("invalid_config", f"{name} must be a text that is not empty.", setting=name)
    return _checked_text(name, value)


def _checked_text(name: str, value: str) -> str:
    try:
        check_text(name, value, SETTINGS[name].choices)
        return checked_telemetry(name.removeprefix("telemetry."), value) if name.startswith("telemetry.") else value
    except ValueError as error:
        raise Refused("invalid_config", f"{name} {error}.", setting=name) from error


def write_setting(path: Path, name: str, value: Any | None) -> None:
    """Set a setting in the file, or take it out (None); the file is replaced whole, 0600.

    Raises:
        Refused: `invalid_config`.
    """
    values = read_file(path)
    if value is None:
        if name not in SETTINGS and name not in values:
            check_setting(name, "")
        values.pop(name, None)
    else:
        values[name] = check_setting(name, value)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(dumps(dict(sorted(values.items()))) + b"\n")
            file.flush()
            os.fsync(descriptor)
        os.replace(draft, path)
    except OSError as error:
        raise Refused("invalid_config", f"{path} cannot be written: {error.strerror}.", path=str(path)) from error
