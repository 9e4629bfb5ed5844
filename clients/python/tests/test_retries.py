"""The policy of retries: which failures, how long, and at which server."""

from __future__ import annotations

import email.utils
import time

import httpx
import pytest

from keylane import ApiError, Client, InvalidRequestError, UnavailableError, UnreachableError
from keylane._request import refusal
from keylane._retry import MAX_PAUSE, Attempts, Servers
from keylane.errors import api_error


def unavailable(retry_after: float | None = None) -> ApiError:
    return api_error(503, {"code": "unavailable", "detail": "starting"}, retry_after)


def test_pauses_grow_up_to_a_bound() -> None:
    attempts = Attempts(Servers("http://a"), 1000)
    pauses = [attempts.after_error(httpx.ConnectError("refused")) for _ in range(12)]
    assert pauses[0] <= 0.1
    assert all(pause <= MAX_PAUSE for pause in pauses)
    assert pauses[-1] >= MAX_PAUSE / 2


def test_retry_after_is_the_least_pause() -> None:
    attempts = Attempts(Servers("http://a"), 1000)
    assert attempts.after_refusal(unavailable(7)) == 7


def test_a_pause_beyond_the_time_for_retries_raises_the_refusal() -> None:
    attempts = Attempts(Servers("http://a"), 60)
    with pytest.raises(UnavailableError) as raised:
        attempts.after_refusal(unavailable(61))
    assert raised.value.retry_after == 61


def test_the_last_transport_error_is_the_cause() -> None:
    attempts = Attempts(Servers("http://a"), 0)
    cause = httpx.ConnectError("refused")
    with pytest.raises(UnreachableError, match="no answer from http://a: refused") as raised:
        attempts.after_error(cause)
    assert raised.value.__cause__ is cause


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 412, 413, 415, 422, 428, 500])
def test_other_refusals_are_raised_at_once(status: int) -> None:
    attempts = Attempts(Servers("http://a,http://b"), 1000)
    with pytest.raises(ApiError):
        attempts.after_refusal(api_error(status, {"code": "some", "detail": "no"}))


def test_the_next_server_is_asked_without_a_pause_and_then_all_again() -> None:
    attempts = Attempts(Servers(["http://a", "http://b/"]), 1000)
    assert attempts.url == "http://a"
    assert attempts.after_error(httpx.ConnectError("refused")) == 0
    assert attempts.url == "http://b"
    assert attempts.after_refusal(unavailable(2)) == 2
    assert attempts.url == "http://a"


def test_an_overloaded_server_is_not_left() -> None:
    attempts = Attempts(Servers("http://a,http://b"), 1000)
    attempts.after_refusal(api_error(429, {"code": "backlog-full", "detail": "full"}, 1))
    assert attempts.url == "http://a"


def test_requests_that_fail_together_leave_a_server_once() -> None:
    servers = Servers("http://a,http://b,http://c")
    both = [Attempts(servers, 1000) for _ in range(2)]
    for attempts in both:
        attempts.after_error(httpx.ConnectError("refused"))
    assert servers.current == "http://b"


@pytest.mark.parametrize("servers", ["", " , ", [], "127.0.0.1:7420", "ftp://a", "http://"])
def test_addresses_are_checked(servers: object) -> None:
    with pytest.raises(ValueError, match="base URL"):
        Client(servers)  # type: ignore[arg-type]


def test_retry_after_may_be_a_date() -> None:
    at = email.utils.formatdate(time.time() + 30, usegmt=True)
    error = refusal(httpx.Response(503, headers={"retry-after": at}))
    assert error.retry_after is not None
    assert 20 < error.retry_after <= 30
    assert refusal(httpx.Response(503, headers={"retry-after": "soon"})).retry_after is None


def test_an_answer_that_is_no_problem_document_is_told_by_its_text() -> None:
    error = refusal(httpx.Response(502, text="<html>Bad Gateway</html>"))
    assert (error.status, error.code) == (502, "")
    assert "Bad Gateway" in str(error)
    assert "answer without a body" in str(refusal(httpx.Response(599)))


def test_a_refusal_has_all_of_the_problem_document() -> None:
    problem = {
        "code": "invalid",
        "title": "The request is invalid",
        "detail": "two fields",
        "instance": "a-1",
        "errors": [{"pointer": "/weight", "detail": "too low"}],
    }
    error = refusal(httpx.Response(422, json=problem))
    assert isinstance(error, InvalidRequestError)
    assert (error.code, error.title, error.instance) == ("invalid", problem["title"], "a-1")
    assert [(place.pointer, place.detail) for place in error.errors] == [("/weight", "too low")]
    assert str(error) == "two fields (422 invalid); /weight: too low"
    problem["detail"] = "/weight: too low"
    assert str(refusal(httpx.Response(422, json=problem))) == "/weight: too low (422 invalid)"
