"""Why an answer of a Chat Completions server ended: the words of all servers as one table, without I/O.

Rule 1: an answer is whole only by a word that its server documents for a whole answer, or is known to send for one.
Whatever nobody knows is `other`: the answer may be cut, and a call of it may be half of one.
Rule 2: `interrupted` is where the server says that it lacked something which it will have again.
Rule 3: the table is one for all servers, since gateways pass on the words of whoever is behind them. Case does not
count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hames.core.conversation import StopReason

_STOPS: Final[Mapping[str, StopReason]] = {
    # https://platform.openai.com/docs/api-reference/chat/object
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
    # Together, for some models: https://github.com/vibrantlabsai/ragas/issues/1548
    "eos": "stop",
    # Text Generation Inference, and watsonx: https://huggingface.co/docs/text-generation-inference (FinishReason),
    # https://github.com/vibrantlabsai/ragas/issues/1548
    "eos_token": "stop",
    "stop_sequence": "stop",
    # Gateways: https://github.com/earendil-works/pi/issues/2107
    "end": "stop",
    # Anthropic's words: https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons; z.ai sends the
    # last: https://github.com/anomalyco/opencode/issues/18813
    "end_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "content_filter",
    "model_context_window_exceeded": "length",
    # Cohere's: https://docs.cohere.com/reference/chat
    "complete": "stop",
    "tool_call": "tool_calls",
    # Mistral: https://docs.mistral.ai/api/#tag/chat
    "model_length": "length",
    # Gemini's: https://ai.google.dev/api/generate-content#FinishReason
    "safety": "content_filter",
    "recitation": "content_filter",
    "blocklist": "content_filter",
    "prohibited_content": "content_filter",
    "spii": "content_filter",
    # Zhipu: https://docs.bigmodel.cn/api-reference
    "sensitive": "content_filter",
    "network_error": "interrupted",
    # DeepSeek: https://api-docs.deepseek.com/api/create-chat-completion
    "insufficient_system_resource": "interrupted",
}

_NOT_YET: Final = {"", "null"}
"""What some servers send with every chunk but the last, where others send no reason: Ollama did the first
(https://github.com/ollama/ollama/issues/4357), DashScope does the second."""


def has_ended(reason: Any) -> bool:
    """Whether `reason`, as it stands in a chunk, is one."""
    return bool(reason) and str(reason).lower() not in _NOT_YET


def stop_of(reason: str | None) -> StopReason:
    """What a finish reason means."""
    return _STOPS.get((reason or "").lower(), "other")
