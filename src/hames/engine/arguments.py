"""A model's arguments against a tool's schema, with errors that the model can act on."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from hames.core.conversation import ToolSpec
from hames.protocol.errors import ToolFailed
from hames.protocol.jsontext import dumps, loads

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator


@lru_cache(maxsize=256)
def _validator(schema: bytes) -> Draft202012Validator:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(loads(schema))


def check_arguments(spec: ToolSpec, raw: str) -> Mapping[str, Any]:
    """The arguments that `raw`, JSON text as the model wrote it, holds; empty text is no arguments.

    Raises:
        ToolFailed: `invalid_arguments`, naming the first member that does not fit.
    """
    try:
        value = loads(raw.encode()) if raw.strip() else {}
    except ValueError as error:
        raise ToolFailed(
            "invalid_arguments", f"The arguments of {spec.name} are not valid JSON ({error}); nothing was run."
        ) from error
    if not isinstance(value, dict):
        raise ToolFailed("invalid_arguments", f"The arguments of {spec.name} must be a JSON object.")
    faults = sorted(_validator(dumps(spec.parameters)).iter_errors(value), key=lambda fault: list(fault.path))
    if faults:
        place = ".".join(str(part) for part in faults[0].path) or "arguments"
        raise ToolFailed("invalid_arguments", f"{spec.name}: {place}: {faults[0].message[:300]}. Nothing was run.")
    return value
