"""`hames config`: get, set, unset and list settings; where they are and which source wins is always told.

Rule 1: of a secret at most the last four characters are shown, and it can be given on stdin, so that it stands in no
shell history and no list of processes.
Rule 2: what is wrong with one setting does not hide the others: it is told after them, and the exit code is 64.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence

from hames.commands.exits import COMPLETED, FAILED, USAGE
from hames.commands.output import emit
from hames.commands.visible import visible
from hames.config import SETTINGS, Config, check_setting, config_path, look_at_config, read_file, write_setting
from hames.protocol.errors import Refused

MIN_SHOWN_SECRET = 12
"""Of a shorter secret nothing is shown: four characters would be too large a part of it."""

MAX_VALUE_BYTES = 64 * 1024
"""Read from stdin for one setting."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions of `config`."""
    actions = parser.add_subparsers(dest="action", metavar="action", required=True)
    get = actions.add_parser("get", help="print the value in force; exit code 1 if there is none")
    get.add_argument("name")
    set_ = actions.add_parser("set", help="write a setting to the file")
    set_.add_argument("name")
    set_.add_argument("value", help="`-` reads it from stdin")
    unset = actions.add_parser("unset", help="take a setting out of the file")
    unset.add_argument("name")
    list_ = actions.add_parser("list", help="print every setting, its value and where it comes from")
    list_.add_argument("--json", action="store_true", help="as one JSON object")


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Do the action."""
    match arguments.action:
        case "get":
            return _get(arguments.name, environ)
        case "set":
            return _set(arguments.name, arguments.value, environ)
        case "unset":
            return _unset(arguments.name, environ)
        case _:
            return _list(environ, as_json=arguments.json)


def _get(name: str, environ: Mapping[str, str]) -> int:
    _known(name)
    config, faults = look_at_config(environ)
    value, source = _in_force(name, config)
    if any(fault.details.get("setting") == name for fault in faults):
        return _told_faults(faults)
    if value is None:
        sys.stderr.write(f"{name} is not set (neither {SETTINGS[name].environment} nor {config_path(environ)})\n")
        return FAILED
    emit(f"{value}\n")
    sys.stderr.write(f"from {_told(source, name, environ)}\n")
    return _told_faults(faults)


def _set(name: str, value: str, environ: Mapping[str, str]) -> int:
    _known(name)
    path = config_path(environ)
    value = check_setting(name, _stdin_value() if value == "-" else value)
    if name == "modelsFile":
        from hames.catalog import load_catalogs

        load_catalogs(value)  # a file that is not good would be refused by every run
    write_setting(path, name, value)
    sys.stderr.write(f"{name} is set in {path}\n")
    _warn_of_environment(name, environ)
    return COMPLETED


def _unset(name: str, environ: Mapping[str, str]) -> int:
    path = config_path(environ)
    if name not in read_file(path):
        _known(name)
        sys.stderr.write(f"{name} was not set in {path}\n")
    else:
        write_setting(path, name, None)
        sys.stderr.write(f"{name} is no longer set in {path}\n")
    _warn_of_environment(name, environ)
    return COMPLETED


def _list(environ: Mapping[str, str], *, as_json: bool) -> int:
    config, faults = look_at_config(environ)
    if as_json:
        from hames.commands.pretty import pretty

        emit(pretty({"path": str(config_path(environ)), "settings": [_row(name, config) for name in SETTINGS]}))
        return _told_faults(faults)
    lines = [f"# {config_path(environ)}; the environment wins over this file, the file over the defaults\n"]
    width = max(map(len, SETTINGS))
    for row in (_row(name, config) for name in SETTINGS):
        shown = "-" if row["value"] is None else visible(str(row["value"]))
        lines.append(f"{row['name']:<{width}} {shown:<36} {row['source']:<12} {row['environment']}\n")
    emit("".join(lines))
    return _told_faults(faults)


def _told_faults(faults: Sequence[Refused]) -> int:
    """Tell what is wrong with the configuration; the exit code. Every other command refuses to go on with it."""
    for fault in faults:
        sys.stderr.write(f"hames: {fault.message}\n")
    return USAGE if faults else COMPLETED


def _row(name: str, config: Config) -> dict[str, object]:
    value, source = _in_force(name, config)
    setting = SETTINGS[name]
    return {
        "name": name,
        "value": value,
        "source": source,
        "environment": setting.environment,
        "meaning": setting.meaning,
    }


def _in_force(name: str, config: Config) -> tuple[object, str]:
    """The value of a setting as it may be shown, and its source."""
    value: object = config.get(name)
    if value is None and name.startswith("limits."):
        return config.limits[name.removeprefix("limits.")], "default"
    if value is not None and SETTINGS[name].secret:
        value = masked(str(value))
    return value, config.sources.get(name, "unset")


def masked(secret: str) -> str:
    """What may be shown of a secret."""
    return "…" + (secret[-4:] if len(secret) >= MIN_SHOWN_SECRET else "")


def _told(source: str, name: str, environ: Mapping[str, str]) -> str:
    if source == "environment":
        return f"{SETTINGS[name].environment} in the environment"
    return str(config_path(environ)) if source == "file" else "the defaults"


def _known(name: str) -> None:
    if name not in SETTINGS:
        check_setting(name, "")


def _warn_of_environment(name: str, environ: Mapping[str, str]) -> None:
    if name in SETTINGS and SETTINGS[name].environment in environ:
        sys.stderr.write(f"{SETTINGS[name].environment} is in the environment and wins over the file\n")


def _stdin_value() -> str:
    with os.fdopen(os.dup(0), "rb") as stdin:
        raw = stdin.read(MAX_VALUE_BYTES + 1)
    if len(raw) > MAX_VALUE_BYTES:
        raise Refused("invalid_config", f"The value on stdin has more than {MAX_VALUE_BYTES} bytes.")
    try:
        return raw.decode().strip()
    except UnicodeDecodeError as error:
        raise Refused("invalid_config", "The value on stdin is not UTF-8.") from error
