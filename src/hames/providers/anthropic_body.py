"""The body of a request to Anthropic's Messages API, without I/O: `body` encodes a `ModelRequest`.

Rule 1: equal requests give equal bytes, and the messages come last but for `tool_choice`. Without its cache markers, a
longer conversation begins with the bytes of the shorter one: a marker is the last member of its block and moves with
the last user turns, and markers are no part of what the vendor compares.
Rule 2: what is sent is always valid: see `request` and `anthropic_messages`.
Rule 3: at most four cache markers, which is all that there may be. The one on the last tool and the one on the system
prompt serve every session with the same ones. Those on the last two turns of the user serve this session: the last
writes what the next request reads, and the one before reads what the request before wrote, also where more than 20
blocks, as far as the vendor looks back, came since.
Rule 4: how much to think is said in the way of the model's family, and not at all where a model would refuse it.

Sources: https://docs.anthropic.com/en/api/messages, https://platform.claude.com/docs/en/build-with-claude/prompt-caching,
https://platform.claude.com/docs/en/build-with-claude/extended-thinking.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hames.core.conversation import AssistantMessage, Effort, ModelRequest, ToolSpec
from hames.providers.anthropic_messages import begins_with_thinking, encode_messages
from hames.providers.anthropic_models import DEFAULT_MAX_TOKENS, Family, family
from hames.providers.anthropic_schema import answer_schema, tool_schema
from hames.providers.request import ToolNames, encoded

MARKER: Final = {"type": "ephemeral"}
"""Ends a prefix that is kept, for 5 minutes from its last use: what comes within a turn comes sooner."""

NO_TOOLS: Final = {
    "name": "no_tool",
    "description": "There is no tool to call.",
    "input_schema": {"type": "object", "properties": {}},
}
"""Declared where a conversation has calls but the request has no tools: calls without tools were refused."""

DROP_BLOCK: Final = {"prefix_mismatch_behavior": "drop_block"}
"""For models that bind thinking to what came before it. A conversation that was compacted, or whose old images were
left out, is one that changed: its old thinking is then left aside, where the default would refuse every request."""

LEAST_BUDGET = 1_024
"""The smallest budget of thinking that is taken."""

_BUDGETS: Mapping[Effort, int] = {"minimal": LEAST_BUDGET, "low": 4_096, "medium": 10_000, "high": 24_000}
"""Tokens of thinking. No more than half of `max_tokens` is given to it: the rest is for the answer."""

_EFFORTS: Mapping[Effort, str] = {"none": "low", "minimal": "low", "low": "low", "medium": "medium", "high": "high"}
"""The vendor's word. `none` is for the models that think in any case: not all can be told not to, all take `low`."""


def body(request: ModelRequest) -> bytes:
    """`request` as the bytes of a streaming Messages request."""
    names = ToolNames(request.tools)
    kin = family(request.model)
    max_tokens = request.max_output_tokens or DEFAULT_MAX_TOKENS
    if kin.most_tokens is not None:
        max_tokens = min(max_tokens, kin.most_tokens)
    document: dict[str, Any] = {"model": request.model, "max_tokens": max_tokens, "stream": True}
    thinking = _thinking(request, kin, max_tokens)
    if thinking:
        document["thinking"] = thinking
    if output := _output(request, kin, thinks=bool(thinking)):
        document["output_config"] = output
    if request.system.strip():
        document["system"] = [{"type": "text", "text": request.system, "cache_control": MARKER}]
    if tools := _tools(request, names):
        tools[-1]["cache_control"] = MARKER
        document["tools"] = tools
    messages = encode_messages(request, names, thinks=bool(thinking))
    for turn in [turn for turn in messages if turn["role"] == "user"][-2:]:
        turn["content"][-1]["cache_control"] = MARKER
    document["messages"] = messages
    if tools and (request.tool_choice == "none" or not request.tools):
        document["tool_choice"] = {"type": "none"}
    return encoded(document)


def _thinking(request: ModelRequest, kin: Family, max_tokens: int) -> dict[str, Any]:
    """Empty where the model is not to think, or cannot be told to."""
    wanted = request.effort not in (None, "none")
    if _thinks_adaptively(request, kin):
        # Newer models send thinking without its text unless they are asked for it.
        asked = {"type": "adaptive", "display": "summarized"}
        return {**asked, "block_binding": DROP_BLOCK} if kin.binds_thinking else asked
    if kin.thinking != "budget" or not wanted:
        return {}
    assert request.effort is not None
    budget = min(_BUDGETS[request.effort], max_tokens // 2)
    # A budget that comes in the middle of a turn is refused: its first answer must begin with thinking.
    if budget < LEAST_BUDGET or not begins_with_thinking(request):
        return {}
    return {"type": "enabled", "budget_tokens": budget}


def binds_thinking(request: ModelRequest) -> bool:
    """Whether `DROP_BLOCK` is sent with it."""
    kin = family(request.model)
    return kin.binds_thinking and _thinks_adaptively(request, kin)


def _thinks_adaptively(request: ModelRequest, kin: Family) -> bool:
    return kin.thinking == "always" or (kin.thinking == "adaptive" and request.effort not in (None, "none"))


def _output(request: ModelRequest, kin: Family, *, thinks: bool) -> dict[str, Any]:
    output: dict[str, Any] = {}
    if thinks and kin.thinking in ("adaptive", "always") and request.effort is not None:
        output["effort"] = _EFFORTS[request.effort]
    if request.output_schema is not None and kin.takes_schema:
        schema = answer_schema(request.output_schema)
        if schema is not None:
            output["format"] = {"type": "json_schema", "schema": schema}
    return output


def _tools(request: ModelRequest, names: ToolNames) -> list[dict[str, Any]]:
    tools = [_tool(tool, names) for tool in request.tools]
    if not tools and any(isinstance(message, AssistantMessage) and message.calls for message in request.messages):
        tools.append(dict(NO_TOOLS))
    return tools


def _tool(tool: ToolSpec, names: ToolNames) -> dict[str, Any]:
    about = {"description": tool.description} if tool.description.strip() else {}
    return {"name": names.sent(tool.name), **about, "input_schema": tool_schema(tool.parameters)}
