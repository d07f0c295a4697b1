"""What is told of an answer that cannot be used: whose limit cut it, and by which reason it was refused."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from hames.core.conversation import Reply, StopReason, ToolCall
from hames.engine.unusable import cut_off, unusable
from hames.ports import ProviderFailed

WHOLE = Reply(
    text="yes", reasoning="", calls=(), stop="stop", raw_stop="stop", usage=None, model=None, response_id=None
)
CALL = ToolCall("c-1", "p-1", "look", "{}")


def failure(stop: StopReason, raw_stop: str | None, *, asked_tokens: int | None = None) -> ProviderFailed:
    failed = unusable(replace(WHOLE, stop=stop, raw_stop=raw_stop), (), asked_tokens)
    assert failed is not None
    assert (failed.boundary, failed.details) == ("model_gateway", {"stopReason": raw_stop})
    return failed


def test_a_whole_answer_is_no_failure() -> None:
    assert unusable(WHOLE, (), None) is None
    assert unusable(replace(WHOLE, text=""), (CALL,), None) is None


@pytest.mark.parametrize("reason", ["SAFETY", "RECITATION", "PROHIBITED_CONTENT", "content_filter", "refusal"])
def test_the_reason_of_the_vendor_is_told(reason: str) -> None:
    failed = failure("content_filter", reason)

    assert failed.kind == "refused"
    assert reason in failed.message


@pytest.mark.parametrize("reason", ["stop", "completed", "end_turn", None])
def test_an_end_that_is_none_of_a_refusal_is_not_given_as_its_reason(reason: str | None) -> None:
    failed = failure("content_filter", reason)

    assert failed.kind == "refused"
    assert "reason" not in failed.message.partition("Change")[0]


def test_a_limit_that_hames_set_is_told_with_the_setting_that_raises_it() -> None:
    failed = failure("length", "max_tokens", asked_tokens=8192)

    assert failed.kind == "output_truncated"
    for told in ("8192", "max_tokens", "`outputTokens`", "`modelsFile`"):
        assert told in failed.message


@pytest.mark.parametrize("reason", ["length", None])
def test_a_limit_that_is_not_ours_is_not_told_as_ours(reason: str | None) -> None:
    failed = failure("length", reason)

    assert failed.kind == "output_truncated"
    assert "the model's or its server's" in failed.message
    assert "None" not in failed.message


def test_a_window_that_is_full_is_no_limit_of_the_answer() -> None:
    failed = failure("length", "model_context_window_exceeded", asked_tokens=8192)

    assert failed.kind == "output_truncated"
    assert "`session/compact`" in failed.message
    assert "8192" not in failed.message
    assert "outputTokens" not in failed.message


def test_an_answer_of_white_space_is_none() -> None:
    failed = unusable(replace(WHOLE, text=" \n"), (), None)

    assert failed is not None
    assert (failed.kind, failed.retryable) == ("empty_response", True)


@pytest.mark.parametrize("stop", [stop for stop in get_args(StopReason) if stop not in ("interrupted", "other")])
def test_an_answer_that_its_provider_calls_whole_or_cut_at_a_limit_is_not_as_if_its_stream_were_cut(
    stop: StopReason,
) -> None:
    assert cut_off(replace(WHOLE, stop=stop)) is None


@pytest.mark.parametrize(("stop", "is_retryable"), [("interrupted", True), ("other", False)])
@pytest.mark.parametrize("raw_stop", ["network_error", None])
def test_an_answer_that_nothing_says_to_be_whole_is_a_failure_whose_usage_is_known(
    stop: StopReason, is_retryable: bool, raw_stop: str | None
) -> None:
    failed = cut_off(replace(WHOLE, stop=stop, raw_stop=raw_stop, usage={"tokens": 3}))

    assert failed is not None
    assert (failed.kind, failed.boundary, failed.retryable) == ("model_gateway", "model_gateway", is_retryable)
    assert failed.details == {"phase": "stream", "stopReason": raw_stop}
    assert failed.usage == {"tokens": 3}
    assert "whole" in failed.message or "later" in failed.message
