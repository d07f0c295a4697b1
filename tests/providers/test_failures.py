"""What a provider's failure means: kind, repeat, wait; bounded and free of the credential."""

from __future__ import annotations

from email.utils import formatdate
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.providers.failures import (
    MAX_RETRY_AFTER_MS,
    MESSAGE_CHARS,
    Said,
    classify,
    read_error,
    read_error_bytes,
    redacted,
    refused_by_provider,
    retry_after_ms,
)

NOW_S = 1_700_000_000.0
KEY = "sk-secret-0123456789"
NOTHING = Said("")


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (302, "model_gateway", False),
        (400, "model_gateway", False),
        (401, "credential_rejected", False),
        (402, "model_gateway", False),
        (403, "credential_rejected", False),
        (404, "model_unavailable", False),
        (405, "model_gateway", False),
        (408, "model_gateway", True),
        (409, "model_gateway", True),
        (413, "context_overflow", False),
        (418, "model_gateway", False),
        (422, "model_gateway", False),
        (425, "model_gateway", True),
        (429, "model_gateway", True),
        (500, "model_gateway", True),
        (503, "model_gateway", True),
        (529, "model_gateway", True),
        (599, "model_gateway", True),
    ],
)
def test_a_status_means_what_the_table_says(status: int, kind: str, retryable: bool) -> None:
    assert classify(status, NOTHING) == (kind, retryable)


def gemini_says(code: int, status: str, message: str, reason: str = "x") -> dict[str, Any]:
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "googleapis.com"}
    return {"error": {"code": code, "message": message, "status": status, "details": [info]}}


def gemini(quota: str) -> dict[str, Any]:
    return {
        "error": {
            "code": 429,
            "message": "You exceeded your current quota, please check your plan and billing details.",
            "status": "RESOURCE_EXHAUSTED",
            "details": [
                {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": quota}]},
                {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "45.837906927s"},
            ],
        }
    }


GEMINI_OVERFLOW = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
GEMINI_KEY = gemini_says(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", "API_KEY_INVALID")
GEMINI_PREPAID = "Your prepayment credits are depleted. Please go to AI Studio to manage your project and billing."
GEMINI_CAP = "Your project has exceeded its monthly spending cap."
OPENAI_TOO_LARGE = (
    "Request too large for gpt-5 in organization org-x on tokens per min (TPM): Limit 30000, Requested 31538. "
    "The input or output tokens must be reduced in order to run successfully."
)
OPENAI_RATE = (
    "Rate limit reached. Please try again in 1m2.5s. You can increase your limit at "
    "https://platform.openai.com/account/billing"
)


@pytest.mark.parametrize(
    ("status", "document", "expected"),
    [
        (429, {"error": {"message": "x", "code": "insufficient_quota"}}, ("model_gateway", False)),
        (429, {"error": {"message": "You exceeded your current quota"}}, ("model_gateway", False)),
        (429, {"error": {"message": OPENAI_RATE, "code": "rate_limit_exceeded"}}, ("model_gateway", True)),
        (429, [gemini("RequestsPerMinutePerProject")], ("model_gateway", True)),
        (429, [gemini("RequestsPerDayPerProject")], ("model_gateway", False)),
        (429, gemini_says(429, "RESOURCE_EXHAUSTED", GEMINI_PREPAID), ("model_gateway", False)),
        (429, gemini_says(429, "RESOURCE_EXHAUSTED", GEMINI_CAP), ("model_gateway", False)),
        (429, gemini_says(429, "RESOURCE_EXHAUSTED", "No capacity available"), ("model_gateway", True)),
        (400, GEMINI_KEY, ("credential_rejected", False)),
        (403, gemini_says(403, "PERMISSION_DENIED", "x"), ("credential_rejected", False)),
        (400, gemini_says(400, "INVALID_ARGUMENT", GEMINI_OVERFLOW), ("context_overflow", False)),
        (400, gemini_says(400, "INVALID_ARGUMENT", "Function call is missing"), ("model_gateway", False)),
        (404, gemini_says(404, "NOT_FOUND", "models/x is not found"), ("model_unavailable", False)),
        (503, gemini_says(503, "UNAVAILABLE", "The model is overloaded."), ("model_gateway", True)),
        (None, gemini_says(503, "UNAVAILABLE", "The model is overloaded."), ("model_gateway", True)),
        (None, GEMINI_KEY, ("credential_rejected", False)),
        (429, {"error": {"message": "too many tokens per minute"}}, ("model_gateway", True)),
        (429, {"error": {"message": OPENAI_TOO_LARGE, "code": "rate_limit_exceeded"}}, ("context_overflow", False)),
        (None, {"error": {"message": OPENAI_TOO_LARGE, "code": "rate_limit_exceeded"}}, ("context_overflow", False)),
        (400, {"error": {"message": "Your input exceeds the context window of x"}}, ("context_overflow", False)),
        (400, {"error": {"message": "x", "type": "exceed_context_size_error"}}, ("context_overflow", False)),
        (503, {"error": {"message": "Slow down", "code": "slow_down"}}, ("model_gateway", True)),
        (None, {"type": "error", "message": "x", "code": "server_error", "param": None}, ("model_gateway", True)),
        (None, {"type": "error", "message": "x", "code": "rate_limit_exceeded"}, ("model_gateway", True)),
        (None, {"error": {"message": "x", "code": "bio_policy"}}, ("model_gateway", False)),
        (None, {"error": {"message": "x", "code": "image_too_large"}}, ("model_gateway", False)),
        (400, {"error": {"message": "x", "code": "context_length_exceeded"}}, ("context_overflow", False)),
        (400, {"error": {"message": "prompt is too long: 9 > 8"}}, ("context_overflow", False)),
        (400, {"error": "This model's maximum context length is 8 tokens"}, ("context_overflow", False)),
        (413, {"error": {"message": "request too large: 32 MB"}}, ("context_overflow", False)),
        (422, {"detail": [{"msg": "input is too long"}]}, ("context_overflow", False)),
        (500, {"error": {"message": "context length"}}, ("model_gateway", True)),
        (None, {"error": {"message": "x", "code": 429}}, ("model_gateway", True)),
        (None, {"error": {"message": "x", "code": 401}}, ("credential_rejected", False)),
        (None, {"error": {"message": "x", "type": "overloaded_error"}}, ("model_gateway", True)),
        (None, {"error": {"message": "x", "type": "invalid_request_error"}}, ("model_gateway", False)),
        (None, {"error": {"message": "x", "code": "invalid_api_key"}}, ("credential_rejected", False)),
        (None, {"error": {"message": "x", "code": "model_not_found"}}, ("model_unavailable", False)),
        (None, {"error": {"message": "x", "code": "context_length_exceeded"}}, ("context_overflow", False)),
        (None, {"error": "x"}, ("model_gateway", True)),
        (
            400,
            {"type": "error", "error": {"message": "input length and `max_tokens` exceed context limit: 9 + 2 > 10"}},
            ("context_overflow", False),
        ),
        (403, {"type": "error", "error": {"message": "x", "type": "billing_error"}}, ("model_gateway", False)),
        (None, {"type": "error", "error": {"message": "x", "type": "billing_error"}}, ("model_gateway", False)),
        (None, {"type": "error", "error": {"message": "x", "type": "request_too_large"}}, ("model_gateway", False)),
        (None, {"type": "error", "error": {"message": "x", "type": "api_error"}}, ("model_gateway", True)),
        (None, {"type": "error", "error": {"message": "x", "type": "rate_limit_error"}}, ("model_gateway", True)),
    ],
)
def test_what_a_provider_says_goes_before_the_status(status: int | None, document: Any, expected: object) -> None:
    assert classify(status, read_error(document, None)) == expected


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":{"message":"busy"}}', "busy"),
        (b'{"error":"busy"}', "busy"),
        (b'{"error":null,"message":"busy"}', "busy"),
        (b'{"detail":"busy"}', "busy"),
        (b'"busy"', "busy"),
        (b" busy ", "busy"),
        (b"", ""),
        (b"<html><head><title>502\n Bad</title></head></html>", "a web page titled '502 Bad'"),
        (b"<!doctype html>", "a web page"),
        (b'{"strange":1}', '{"strange":1}'),
        (b"\xff", "\ufffd"),
    ],
)
def test_the_reason_is_found_in_any_body(body: bytes, message: str) -> None:
    assert read_error_bytes(body, None).message == message


@pytest.mark.parametrize(
    ("headers", "said", "expected"),
    [
        ({}, NOTHING, None),
        ({"retry-after": "2"}, NOTHING, 2_000),
        ({"retry-after": "1.5"}, NOTHING, 1_500),
        ({"retry-after": "0"}, NOTHING, 0),
        ({"retry-after": "-5"}, NOTHING, None),
        ({"retry-after": "nan"}, NOTHING, None),
        ({"retry-after": "inf"}, NOTHING, MAX_RETRY_AFTER_MS),
        ({"retry-after": "1e300"}, NOTHING, MAX_RETRY_AFTER_MS),
        ({"retry-after": "soon"}, NOTHING, None),
        ({"retry-after": "2", "retry-after-ms": "350"}, NOTHING, 350),
        ({"retry-after": formatdate(NOW_S + 30, usegmt=True)}, NOTHING, 30_000),
        ({"retry-after": formatdate(NOW_S - 30, usegmt=True)}, NOTHING, 0),
        (
            {"retry-after": formatdate(NOW_S + 930, usegmt=True), "date": formatdate(NOW_S + 900, usegmt=True)},
            NOTHING,
            30_000,
        ),
        ({}, read_error(gemini("PerMinute"), None), 45_837),
        ({}, Said(OPENAI_RATE), 62_500),
        ({}, Said("Please try again in 20ms."), 20),
        ({}, Said("try again in 3 minutes"), None),
        ({"retry-after": "1"}, Said("try again in 17s"), 1_000),
    ],
)
def test_the_wait_is_read_in_all_its_forms(headers: dict[str, str], said: Said, expected: int | None) -> None:
    assert retry_after_ms(headers, said, NOW_S) == expected


@given(st.text(max_size=30) | st.floats().map(str), st.text(max_size=30), st.text(max_size=50))
def test_no_header_and_no_text_makes_a_wait_negative_or_endless(after: str, date: str, message: str) -> None:
    wait = retry_after_ms({"retry-after": after, "date": date, "retry-after-ms": date}, Said(message), NOW_S)

    assert wait is None or 0 <= wait <= MAX_RETRY_AFTER_MS


@given(before=st.text(max_size=MESSAGE_CHARS + 50), after=st.text(max_size=50))
def test_the_credential_is_nowhere_and_the_text_is_bounded(before: str, after: str) -> None:
    text = redacted(before + KEY + after, KEY)

    assert "secret" not in text
    assert len(text) <= MESSAGE_CHARS
    text.encode()


def test_every_echo_of_the_credential_is_redacted() -> None:
    error = refused_by_provider(
        401,
        read_error({"error": {"message": f"bad key {KEY}", "code": KEY}}, KEY),
        phase="stream",
        secret=KEY,
        headers={"x-request-id": f"r-{KEY}", "retry-after": "3"},
        now_s=NOW_S,
    )

    assert KEY not in orjson.dumps([error.message, error.details, str(error)]).decode()
    assert error.details["status"] == 401
    assert error.details["requestId"] == "r-[redacted]"
    assert error.retry_after_ms == 3_000
    assert error.boundary == "model_gateway"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["error", "message", "code", "details", "status"]), inner, max_size=4)
        ),
    ),
    st.none() | st.integers(300, 599),
)
def test_any_error_body_gives_a_failure_that_json_can_carry(document: Any, status: int | None) -> None:
    error = refused_by_provider(
        status, read_error(document, None), phase="stream", secret=None, headers={}, now_s=NOW_S
    )

    orjson.dumps(error.data())
    assert error.message
