"""Streams of events and results are whole, also over broken connections."""

from __future__ import annotations

from harness.api import Api
from harness.proxy import Proxy
from harness.testee import Call, Testee


def events_until(call: Call, kind: str, number: int) -> list[dict[str, object]]:
    """Returns the events of a job up to the one of a subtask."""
    seen = []
    while True:
        seen.append(call.event("job-event")["data"])
        if (seen[-1]["event"], seen[-1].get("number")) == (kind, number):
            return seen


def test_events_resume_behind_the_last_one_after_a_cut(
    behind: Testee, proxy: Proxy, api: Api
) -> None:
    subtasks = [{"payload": n, "key": "a"} for n in range(9)]
    job = behind.ask("submit", kind="slow", subtasks=subtasks)
    follow = behind.begin("events", job=job["id"])
    seen = [follow.event("job-event")["data"]]
    assert seen[0]["job"]["id"] == job["id"]
    claim = {"kinds": ["slow"], "wait_ms": 10_000, "worker": "suite"}

    def fail_next(number: int) -> None:
        [lease] = api.post("/v1/leases", claim)["leases"]
        assert lease["number"] == number
        api.post(f"/v1/leases/{lease['id']}/fail", {"error": f"e{number}", "retry": False})

    for first in (0, 3, 6):
        fail_next(first)
        seen += events_until(follow, "subtask_failed", first)
        # These events happen while the client has no connection.
        proxy.go_down()
        fail_next(first + 1)
        fail_next(first + 2)
        proxy.come_back()
        seen += events_until(follow, "subtask_failed", first + 2)
    follow.answer()
    while not follow.events.empty():
        seen.append(follow.event("job-event")["data"])
    failed = [event for event in seen if event["event"] == "subtask_failed"]
    assert [(event["number"], event["error"]) for event in failed] == [
        (number, f"e{number}") for number in range(9)
    ]
    assert proxy.count(f"GET /v1/jobs/{job['id']}/events") >= 4
    assert seen[-1]["event"] == "job_ended"
    assert seen[-1]["job"]["state"] == "failed"


def test_events_of_an_ended_job_end_at_once(testee: Testee) -> None:
    job = testee.ask("submit", kind="echo", payload=1)
    testee.ask("wait", job=job["id"])
    follow = testee.begin("events", job=job["id"])
    follow.answer()
    last = follow.event("job-event")["data"]
    assert (last["event"], last["job"]["state"]) == ("job_ended", "succeeded")


def test_results_of_many_subtasks_are_read_in_order(behind: Testee, proxy: Proxy, api: Api) -> None:
    count = 5000
    job = behind.ask("submit_many", kind="slow", count=count, keys=count)
    api.do("slow", count)
    # The first try breaks off.
    proxy.lose_answers(f"GET /v1/jobs/{job['id']}/results")
    results = behind.ask("results", job=job["id"])
    assert [result["number"] for result in results] == list(range(count))
    assert all(result["result"] == result["number"] for result in results)
