"""What the checks look at (`Case`) and what they say (`Finding`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from hames.config import SETTINGS, Config, home_path, look_at_config
from hames.core.records import record
from hames.core.redaction import worth_hiding
from hames.protocol.errors import Refused
from hames.telemetry.settings import secrets_of

Status = Literal["ok", "warn", "fail"]
"""`warn`: works, with less than one may expect. `fail`: something that Hames is for does not work."""


@record
class Problem:
    """One thing that is not as it should be, as a sentence, and what to do about it, as another."""

    status: Literal["warn", "fail"]
    what: str
    advice: str


@record
class Finding:
    """What a check saw, in one line, and what is wrong with it. `details` is for programs."""

    seen: str
    problems: tuple[Problem, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> Status:
        """That of the worst problem."""
        found = {problem.status for problem in self.problems}
        return "fail" if "fail" in found else "warn" if "warn" in found else "ok"


@record
class Case:
    """An installation. `config` holds what of the configuration can be used, `faults` say what is wrong with the
    rest."""

    environ: Mapping[str, str]
    config: Config
    faults: tuple[Refused, ...]
    home: Path

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be told, wherever it shows up: from the environment also where the file would not be read."""
        names = [name for name, setting in SETTINGS.items() if setting.secret]
        found = [self.config.get(name) for name in names]
        found += [self.environ.get(SETTINGS[name].environment) for name in names]
        given = (self.config.get("telemetry.headers"), self.environ.get(SETTINGS["telemetry.headers"].environment))
        found += [secret for text in given for secret in secrets_of(text)]
        return tuple({secret.strip() for secret in found if worth_hiding(secret) is not None})


def case_of(environ: Mapping[str, str]) -> Case:
    """The installation that `environ` points to."""
    try:
        config, faults = look_at_config(environ)
    except Refused as refused:
        config, faults = Config({}, {}), [refused]
    return Case(environ, config, tuple(faults), home_path(environ))
