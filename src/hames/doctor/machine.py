"""What Hames runs on: Python, its own installation, the configuration, SQLite's library, the terminal."""

from __future__ import annotations

import locale
import os
import platform
import shutil
import stat
import sys
from importlib import import_module, metadata
from pathlib import Path

from hames import __version__
from hames.config import SETTINGS, config_path, unknown_variables
from hames.doctor.case import Case, Finding, Problem

MIN_PYTHON = (3, 11)
"""As in pyproject.toml."""

PARTS = ("anyio", "apsw", "httpx", "jsonschema", "orjson", "pydantic", "rfc8785", "hames_client")
"""What Hames imports when it is needed, some of it late: a wheel of another platform shows there."""

HEAD_BYTES = 4096
"""Of a console script: its first lines name the interpreter."""


def check_python(case: Case) -> Finding:
    """The interpreter."""
    version = platform.python_version()
    seen = f"{platform.python_implementation()} {version}, {sys.executable}"
    problems = []
    if sys.version_info < MIN_PYTHON:
        wanted = ".".join(map(str, MIN_PYTHON))
        problems.append(Problem("fail", f"It is older than {wanted}.", f"Install Hames for Python {wanted} or newer."))
    return Finding(seen, tuple(problems), {"version": version, "executable": sys.executable})


def check_install(case: Case) -> Finding:
    """The package: whole, of one version, and what the command `hames` starts."""
    folder = str(Path(__file__).parents[1])
    problems = [_part_that_fails(name) for name in PARTS]
    try:
        installed = metadata.version("hames")
    except metadata.PackageNotFoundError:
        installed = None
    if installed not in (None, __version__):
        problems.append(
            Problem("warn", f"The installation says {installed}, the code {__version__}.", "Install Hames again.")
        )
    script = shutil.which("hames", path=case.environ.get("PATH"))
    if script is None:
        where = os.path.dirname(sys.executable)
        problems.append(Problem("warn", "PATH has no `hames`.", f"Add {where} to PATH, if it has one."))
    elif not starts_this(script):
        problems.append(
            Problem("warn", f"PATH has another `hames`: {script}.", f"Put {os.path.dirname(sys.executable)} before it.")
        )
    found = tuple(problem for problem in problems if problem is not None)
    details = {"version": __version__, "folder": folder, "script": script}
    return Finding(f"hames {__version__} in {folder}; on PATH: {script or 'none'}", found, details)


def _part_that_fails(name: str) -> Problem | None:
    try:
        import_module(name)
    # A border: whatever a broken package raises when it is imported is the finding.
    except Exception as error:
        return Problem("fail", f"{name} cannot be imported: {type(error).__name__}: {error}.", "Install Hames again.")
    return None


def starts_this(script: str) -> bool:
    """Whether a console script runs with this interpreter: it lies beside it, or names it."""
    real = os.path.realpath(script)
    if os.path.dirname(real) == os.path.realpath(os.path.dirname(sys.executable)):
        return True
    try:
        with open(real, "rb") as file:
            return os.fsencode(sys.executable) in file.read(HEAD_BYTES)
    except OSError:
        return False


def check_config(case: Case) -> Finding:
    """The settings: those that are wrong, those that are none, and who may read the keys among them."""
    path = config_path(case.environ)
    sources = sorted({str(source) for source in case.config.sources.values()})
    seen = f"{path}{'' if path.exists() else ' (none)'}; {len(case.config.sources)} settings in force"
    problems = [Problem("fail", fault.message, "Every other command refuses it until then.") for fault in case.faults]
    problems += [Problem("warn", text, "Correct or unset the variable.") for text in unknown_variables(case.environ)]
    secret = any(setting.secret and case.config.sources.get(name) == "file" for name, setting in SETTINGS.items())
    if secret and (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077:
        problems.append(
            Problem("warn", f"It holds a key, and others may read it (mode {mode:04o}).", f"Run: chmod 600 {path}")
        )
    return Finding(seen, tuple(problems), {"path": str(path), "sources": sources})


def check_sqlite(case: Case) -> Finding:
    """SQLite's library: new enough, and the one that comes with apsw."""
    import apsw

    from hames.store.schema import MIN_SQLITE

    version = apsw.sqlite_lib_version()
    own = bool(apsw.using_amalgamation)
    problems = []
    if tuple(int(part) for part in version.split(".")[:3]) < MIN_SQLITE:
        wanted = ".".join(map(str, MIN_SQLITE))
        problems.append(
            Problem("fail", f"SQLite is older than {wanted}, the first without a race in its WAL.", "Update apsw.")
        )
    if not own:
        problems.append(
            Problem(
                "warn",
                "apsw uses the SQLite of the system, which others replace.",
                "Install apsw from a wheel: python3 -m pip install --force-reinstall --only-binary=apsw apsw",
            )
        )
    origin = "with apsw" if own else "of the system"
    seen = f"SQLite {version} ({origin}), apsw {apsw.apsw_version()}"
    return Finding(seen, tuple(problems), {"sqlite": version, "apsw": apsw.apsw_version(), "amalgamation": own})


def check_terminal(case: Case) -> Finding:
    """Where output goes, and whether it takes UTF-8."""
    encoding = locale.getencoding()
    joined = {name: os.isatty(number) for number, name in enumerate(("stdin", "stdout", "stderr")) if _is_open(number)}
    terminals = ", ".join(name for name, is_terminal in joined.items() if is_terminal) or "none"
    kind = case.environ.get("TERM", "unset")
    seen = f"terminals: {terminals}; TERM {kind}; encoding {encoding}"
    problems = []
    if encoding.lower().replace("-", "") != "utf8":
        problems.append(
            Problem(
                "warn",
                f"The locale's encoding is {encoding}, and Hames writes UTF-8.",
                "Set LC_ALL or LANG to a UTF-8 locale, such as C.UTF-8.",
            )
        )
    if sys.getfilesystemencoding().lower() != "utf-8":
        problems.append(Problem("warn", "File names are not taken as UTF-8.", "Set PYTHONUTF8=1, or a UTF-8 locale."))
    return Finding(seen, tuple(problems), {"terminals": joined, "term": kind, "encoding": encoding})


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
