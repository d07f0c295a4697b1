"""What servers of Chat Completions want each in their own way, as data: one row a server, by its host or by its name.

Rule 1: `STRICTEST` is for a server that nobody knows: what all of them take, and nothing else. A row only adds what its
server documents, or takes away what it refuses.
Rule 2: nothing is found out by trying: the same server gets the same request every time.

Sources stand at the rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from hames.core.conversation import Effort
from hames.core.records import record

ANY_ID: Final = re.compile(r"[!-~]{1,64}")
"""Ids of calls: OpenAI refuses longer ones."""


def _as(member: str, efforts: Mapping[Effort, str]) -> dict[Effort, Mapping[str, Any]]:
    return {effort: {member: word} for effort, word in efforts.items()}


_EFFORTS: Final[Mapping[Effort, str]] = {each: each for each in ("none", "minimal", "low", "medium", "high")}


@record
class Quirks:
    """One server.

    `hosts` matches the host of its base URL, with the port where that tells it. `output_limit` is the member for
    `max_output_tokens`, `effort` the members for each effort; what is not there is left out. `echo` is a member of an
    answer that goes back with it, and `echo_always` has it go back empty where there is none. `call_ids` is the form of
    an id, made of so many `call_id_digits` where it does not fit. `bridges`: an assistant's message stands between a
    result and what the user says. `cost_currency` is that of `usage.cost`, where that is known to be money.
    `api_version` is asked for in the query, except where the path ends with `/v1`.
    """

    name: str
    hosts: re.Pattern[str] | None = None
    output_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    effort: Mapping[Effort, Mapping[str, Any]] = field(default_factory=dict)
    takes_schema: bool = False
    takes_cache_key: bool = False
    takes_stream_options: bool = True
    system_role: Literal["system", "developer"] = "system"
    echo: Literal["reasoning_content", "reasoning_details"] | None = None
    echo_always: bool = False
    call_ids: re.Pattern[str] = ANY_ID
    call_id_prefix: str = "call_"
    call_id_digits: int = 24
    bridges: bool = False
    cost_currency: str | None = None
    key_header: Literal["authorization", "api-key"] = "authorization"
    api_version: str | None = None

    @property
    def dialect(self) -> str:
        """The name under which the server's own parts of an answer are kept: see `core/signed.py`."""
        return f"compatible/{self.name}"


STRICTEST: Final = Quirks("unknown")

_ROWS: Final = (
    # https://platform.openai.com/docs/api-reference/chat/create
    Quirks(
        "openai",
        re.compile(r"api\.openai\.com"),
        output_limit="max_completion_tokens",
        effort=_as("reasoning_effort", _EFFORTS),
        takes_schema=True,
        takes_cache_key=True,
        system_role="developer",
    ),
    # https://learn.microsoft.com/azure/ai-foundry/openai/latest, and .../openai/reference for the versions with a date
    Quirks(
        "azure",
        re.compile(r".*\.(openai\.azure|services\.ai\.azure|cognitiveservices\.azure)\.(com|us|cn)"),
        output_limit="max_completion_tokens",
        effort=_as("reasoning_effort", _EFFORTS),
        takes_schema=True,
        key_header="api-key",
        api_version="2024-10-21",
    ),
    # https://openrouter.ai/docs/use-cases/reasoning-tokens (preserving reasoning blocks), .../usage-accounting (a
    # credit is a US dollar)
    Quirks(
        "openrouter",
        re.compile(r"openrouter\.ai"),
        effort={effort: {"reasoning": {"effort": effort}} for effort in _EFFORTS},
        takes_schema=True,
        echo="reasoning_details",
        cost_currency="USD",
    ),
    # https://api-docs.deepseek.com/guides/thinking_mode: reasoning goes back with every answer, else 400
    Quirks(
        "deepseek",
        re.compile(r"api\.deepseek\.com"),
        effort={
            "none": {"thinking": {"type": "disabled"}},
            **_as("reasoning_effort", {"minimal": "low", "low": "low", "medium": "high", "high": "high"}),
        },
        echo="reasoning_content",
        echo_always=True,
    ),
    # https://platform.moonshot.ai/docs/guide/use-kimi-k2-thinking-model: reasoning goes back with every answer
    Quirks("moonshot", re.compile(r"api\.moonshot\.(ai|cn)"), echo="reasoning_content"),
    # https://docs.mistral.ai/api/#tag/chat refuses every member that it does not name, `stream_options` among them, ids
    # of another form (error 3280), and a user's message right behind a result (error 3230).
    Quirks(
        "mistral",
        re.compile(r"(api|codestral)\.mistral\.ai"),
        effort=_as(
            "reasoning_effort", {"none": "none", "minimal": "none", "low": "high", "medium": "high", "high": "high"}
        ),
        takes_schema=True,
        takes_cache_key=True,
        takes_stream_options=False,
        call_ids=re.compile(r"[A-Za-z0-9]{9}"),
        call_id_prefix="",
        call_id_digits=9,
        bridges=True,
    ),
    # https://docs.ollama.com/api/openai-compatibility
    Quirks(
        "ollama",
        re.compile(r"(.*:11434|ollama\.com)"),
        effort=_as("reasoning_effort", {**_EFFORTS, "minimal": "low"}),
        takes_schema=True,
    ),
    # https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
    Quirks(
        "vllm",
        output_limit="max_completion_tokens",
        effort=_as("reasoning_effort", _EFFORTS),
        takes_schema=True,
    ),
    # https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
    Quirks("llama.cpp", takes_schema=True),
)

SERVERS: Final[Mapping[str, Quirks]] = {row.name: row for row in (STRICTEST, *_ROWS)}
"""The rows by name, as the setting `providers.compatible.server` names them."""


def quirks_of(base_url: str, server: str | None = None) -> Quirks:
    """The row of the server at `base_url`: that called `server`, else the one whose hosts it is among.

    Raises:
        KeyError: there is no row called `server`.
    """
    parts = urlsplit(base_url)
    if server is not None:
        found = SERVERS[server]
    else:
        names = (parts.hostname or "", f"{parts.hostname}:{parts.port}")
        found = next(
            (row for row in _ROWS if row.hosts and any(row.hosts.fullmatch(name) for name in names)), STRICTEST
        )
    # The version in the path is the newer way to name it.
    return replace(found, api_version=None) if parts.path.rstrip("/").endswith("/v1") else found
