"""A model's arguments against a tool's schema, with errors that the model can act on.

Rule: an error names the place and what is allowed there, and repeats nothing of what was given.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from hames.core.conversation import ARGUMENTS_DEPTH, ToolSpec
from hames.protocol.errors import ToolFailed
from hames.protocol.jsontext import dumps, is_deeper, loads

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

_RULES: Mapping[str, str] = {
    "minLength": "must have {} characters or more",
    "maxLength": "must have {} characters or fewer",
    "minItems": "must have {} items or more",
    "maxItems": "must have {} items or fewer",
    "minimum": "must be {} or more",
    "maximum": "must be {} or less",
    "exclusiveMinimum": "must be more than {}",
    "exclusiveMaximum": "must be less than {}",
    "pattern": "must match the pattern {}",
}
"""What is said of a schema's keyword, with its value."""

_ALLOWED_CHARS = 300
"""Of what a schema allows, where it is a list."""


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
    if is_deeper(value, ARGUMENTS_DEPTH):
        raise ToolFailed(
            "invalid_arguments",
            f"{spec.name}: arguments must be nested to {ARGUMENTS_DEPTH} levels or fewer. Nothing was run.",
        )
    faults = sorted(_validator(dumps(spec.parameters)).iter_errors(value), key=lambda fault: list(fault.path))
    if faults:
        raise ToolFailed("invalid_arguments", f"{spec.name}: {_told(faults[0])}. Nothing was run.")
    return value


def _told(fault: ValidationError) -> str:
    # A name that is not in the schema is one that was given.
    own = {part for part in fault.absolute_schema_path if isinstance(part, str)}
    parts = [str(part) if isinstance(part, int) or part in own else "*" for part in fault.absolute_path]
    return f"{'.'.join(parts) or 'arguments'} {_rule(fault)}"


def _rule(fault: ValidationError) -> str:
    keyword, wanted = str(fault.validator), fault.validator_value
    if "propertyNames" in fault.absolute_schema_path:
        return "has a name that is not allowed" + (f"; names match {wanted}" if keyword == "pattern" else "")
    if keyword == "required":
        missing = [f"`{name}`" for name in wanted if name not in fault.instance]
        return f"must have {', '.join(missing)}"
    if keyword == "additionalProperties":
        known = ", ".join(f"`{name}`" for name in fault.schema.get("properties", {}))
        return f"has a member that is not known; there are: {known or 'none'}"[:_ALLOWED_CHARS]
    if keyword == "type":
        return f"must be of the type {' or '.join([wanted] if isinstance(wanted, str) else wanted)}"
    if keyword in ("enum", "const"):
        return f"must be one of {dumps(wanted).decode()}"[:_ALLOWED_CHARS]
    if keyword in _RULES:
        return _RULES[keyword].format(wanted)
    return f"does not fit `{keyword}` of its schema"
