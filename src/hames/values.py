"""What the text of a setting may be, as far as the text itself tells; no file is read and no server asked.

Rule: a check raises `ValueError` with what comes after the setting's name in a sentence, without its full stop.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Final

from hames.providers import PROVIDERS

PROVIDER_TYPO: Final = 0.8
"""How alike (difflib) to a provider's name what stands before the `/` of a model must be to be a typing error, and
not part of the model's name, as in `qwen/qwen3`."""

OWNER_CHARS: Final = 80
"""Of the label of a key's owner: it stands in every snapshot."""

SHOWN_CHARS: Final = 80
"""Of a value in a message."""


def check_text(name: str, value: str, choices: Sequence[str] = ()) -> None:
    """Whether `value` may be that of the setting `name`, which is one of `choices` where there are any.

    Raises:
        ValueError: it may not.
    """
    if choices and value not in choices:
        raise ValueError(f"must be {' or '.join(choices)}, not {value[:SHOWN_CHARS]!r}")
    for pattern, check in _CHECKS.items():
        if fnmatchcase(name, pattern):
            check(value)


def misspelt_provider(model: str) -> str | None:
    """What is wrong with a model whose provider looks like a typing error of one that there is; None: nothing is."""
    name, slash, rest = model.partition("/")
    close = [] if name in PROVIDERS else get_close_matches(name.lower(), PROVIDERS, 1, PROVIDER_TYPO)
    if not close:
        return None
    known = ", ".join(PROVIDERS)
    meant = f"{close[0]}{slash}{rest}"[:SHOWN_CHARS]
    return f"There is no provider {name[:SHOWN_CHARS]!r}; did you mean `{meant}`? Of providers there are: {known}"


def _model(value: str) -> None:
    if (wrong := misspelt_provider(value)) is not None:
        raise ValueError(f"cannot be {value[:SHOWN_CHARS]!r}. {wrong}")


def _path(value: str) -> None:
    if not os.path.isabs(value):
        raise ValueError(f"must be an absolute path, not {value[:SHOWN_CHARS]!r}")


def _url(value: str) -> None:
    if not re.fullmatch(r"https?://[^\s/]+(/\S*)?", value):
        raise ValueError(f"must be an http or https URL, not {value[:SHOWN_CHARS]!r}")
    # It is shown, and stands in every session's route: no place for a password or a key.
    if re.match(r"https?://[^/?#]*@", value) or "?" in value or "#" in value:
        raise ValueError("must be a URL without user, query and fragment")


def _command(value: str) -> None:
    import shlex

    try:
        words = shlex.split(value)
    except ValueError as error:
        raise ValueError(f"is not a command line: {error}") from error
    if not words or "\0" in value:
        raise ValueError("must name a program")


def _owner(value: str) -> None:
    if len(value) > OWNER_CHARS or not value.isprintable():
        raise ValueError(f"must be one line of at most {OWNER_CHARS} characters")


def _server(value: str) -> None:
    from hames.providers.chat_quirks import SERVERS

    if value not in SERVERS:
        raise ValueError(f"must be one of {', '.join(SERVERS)}, not {value[:SHOWN_CHARS]!r}")


_CHECKS: Mapping[str, Callable[[str], None]] = {
    "model": _model,
    "bubblewrap": _path,
    "modelsFile": _path,
    "*baseUrl": _url,
    "*.apiKeyCommand": _command,
    "*.owner": _owner,
    "providers.compatible.server": _server,
}
"""By the names of settings, which may have wildcards."""
