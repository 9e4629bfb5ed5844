"""A submission counts once, whatever is lost on the way; refusals are told or waited out."""

from __future__ import annotations

import time

import pytest
from keylane.testing import Server

from harness.api import Api, eventually
from harness.proxy import Proxy
from harness.testee import Refused, Testee


def test_a_job_is_submitted_and_its_result_read(testee: Testee) -> None:
    job = testee.ask("submit", kind="echo", payload={"n": 1}, key="a", options={"name": "first"})
    assert job["name"] == "first"
    ended = testee.ask("wait", job=job["id"])
    assert ended["state"] == "succeeded"
    [result] = testee.ask("results", job=job["id"])
    assert (result["number"], result["outcome"], result["result"]) == (0, "succeeded", {"n": 1})
    assert testee.ask("job", job=job["id"])["counts"]["succeeded"] == 1


def test_listed_subtasks_keep_their_keys_and_payloads(testee: Testee, api: Api) -> None:
    subtasks = [{"key": "a", "payload": None}, {"key": "b/ü", "payload": [1.5, "x\u2028y"]}]
    job = testee.ask("submit", kind="slow", subtasks=subtasks)
    seen = [api.subtask(job["id"], number) for number in (0, 1)]
    assert [(one["keys"], one["payload"]) for one in seen] == [
        (["a"], None),
        (["b/ü"], [1.5, "x\u2028y"]),
    ]


def test_a_lost_answer_makes_no_second_job(behind: Testee, proxy: Proxy, api: Api) -> None:
    proxy.lose_answers("POST /v1/jobs", times=2)
    job = behind.ask("submit", kind="slow", payload=1)
    assert proxy.count("POST /v1/jobs") == 3
    assert [one["id"] for one in api.jobs()] == [job["id"]]


def test_a_lost_request_is_sent_again(behind: Testee, proxy: Proxy, api: Api) -> None:
    proxy.lose_requests("POST /v1/jobs")
    job = behind.ask("submit", kind="slow", payload=1)
    assert [one["id"] for one in api.jobs()] == [job["id"]]


def test_a_lost_answer_to_a_stream_makes_no_second_job(
    behind: Testee, proxy: Proxy, api: Api
) -> None:
    proxy.lose_answers("POST /v1/jobs")
    job = behind.ask("submit_many", kind="slow", count=5000, keys=10)
    assert job["counts"]["total"] == 5000
    assert [one["id"] for one in api.jobs()] == [job["id"]]


def test_many_subtasks_are_streamed(testee: Testee, api: Api) -> None:
    job = testee.ask("submit_many", kind="slow", count=20_000, keys=100)
    assert job["counts"]["total"] == 20_000
    last = api.subtask(job["id"], 19_999)
    assert (last["keys"], last["payload"]) == (["k99"], 19_999)


def test_an_idempotency_key_is_one_job(testee: Testee) -> None:
    once = {"kind": "slow", "idempotency_key": "upload-1"}
    first = testee.ask("submit", payload=1, **once)
    assert testee.ask("submit", payload=1, **once)["id"] == first["id"]
    with pytest.raises(Refused) as refused:
        testee.ask("submit", payload=2, **once)
    assert (refused.value.status, refused.value.code) == (422, "other-request")


def test_two_submissions_are_two_jobs(testee: Testee) -> None:
    ids = {testee.ask("submit", kind="slow", payload=1)["id"] for _ in range(2)}
    assert len(ids) == 2


def test_503_is_waited_out(behind: Testee, proxy: Proxy) -> None:
    proxy.answer("POST /v1/jobs", 503, "retry-after: 1")
    began = time.monotonic()
    behind.ask("submit", kind="slow", payload=1)
    assert time.monotonic() - began >= 1
    assert proxy.count("POST /v1/jobs") == 2


class TestFullBacklog:
    @pytest.fixture
    def keylane_settings(self) -> dict[str, int]:
        return {"max_waiting_subtasks": 1}

    def test_429_is_waited_out(self, behind: Testee, proxy: Proxy, api: Api) -> None:
        first = behind.ask("submit", kind="slow", payload=1)
        second = behind.begin("submit", kind="slow", payload=2)
        proxy.wait_until(lambda proxy: 429 in proxy.statuses, "429")
        assert not second.future.done()
        api.do("slow", 1)
        assert second.answer()["id"] != first["id"]


def test_a_refusal_is_told_with_its_places(behind: Testee, proxy: Proxy) -> None:
    with pytest.raises(Refused) as refused:
        behind.ask("submit", kind="slow", payload=1, options={"weight": -1, "priority": "high"})
    assert (refused.value.status, refused.value.code) == (422, "invalid")
    assert refused.value.places == {"/weight"}
    assert "whole number" in refused.value.detail
    # It is not sent again.
    assert proxy.count("POST /v1/jobs") == 1


def test_an_unknown_job_is_told(testee: Testee) -> None:
    with pytest.raises(Refused) as refused:
        testee.ask("job", job="job_without")
    assert (refused.value.status, refused.value.code) == (404, "unknown")


def test_a_server_that_is_not_there_yet_is_waited_for(
    behind: Testee, proxy: Proxy, server: Server
) -> None:
    server.stop()
    submission = behind.begin("submit", kind="slow", payload=1)
    proxy.wait_until(lambda proxy: proxy.connections >= 2, "two connections")
    server.start()
    assert submission.answer()["kind"] == "slow"


def test_a_restart_is_waited_for(testee: Testee, server: Server, api: Api) -> None:
    job = testee.ask("submit", kind="slow", payload=1)
    waiting = testee.begin("wait", job=job["id"])
    server.kill()
    server.start()
    api.do("slow", 1)
    assert waiting.answer()["state"] == "succeeded"


class TestTokens:
    @pytest.fixture
    def keylane_settings(self, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
        tokens = tmp_path_factory.mktemp("tokens") / "tokens.txt"
        tokens.write_text("ann admin plain:correct-token-of-32-characters\n")
        tokens.chmod(0o600)
        return {"tokens": str(tokens)}

    def test_a_wrong_token_is_told_at_once(self, start, proxy: Proxy) -> None:  # type: ignore[no-untyped-def]
        testee = start(proxy.url, token="wrong-token-of-32-characters-here")
        with pytest.raises(Refused) as refused:
            testee.ask("submit", kind="slow", payload=1)
        assert (refused.value.status, refused.value.code) == (401, "unauthorized")
        assert proxy.count("POST /v1/jobs") == 1

    def test_the_token_is_sent(self, start, server: Server) -> None:  # type: ignore[no-untyped-def]
        testee = start(server.url, token="correct-token-of-32-characters")
        assert testee.ask("submit", kind="slow", payload=1)["kind"] == "slow"


def test_kinds_keys_and_schedules_are_read(testee: Testee) -> None:
    kinds = {kind["name"]: kind["handler"] for kind in testee.ask("kinds")}
    assert kinds == {"slow": "lease", "short": "lease", "echo": "command"}
    job = testee.ask("submit", kind="slow", payload=1, key="a/b")
    key = eventually(lambda: testee.ask("keys", key="a/b"), "the key")
    assert (key["key"], key["length"], key["head"]["job"]) == ("a/b", 1, job["id"])
    schedule = {"cron": "0 9 * * MON-FRI", "job": {"kind": "echo", "payload": 1}}
    assert testee.ask("schedule_put", name="report", schedule=schedule)["name"] == "report"
    assert [one["name"] for one in testee.ask("schedules")] == ["report"]
