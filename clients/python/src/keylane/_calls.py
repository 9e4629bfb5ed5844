"""The requests of the API, one function each. Both clients send what these return."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Literal, Optional, TypedDict, TypeVar, Union

import httpx

from ._decode import decode
from ._json import encode
from ._request import Request, nothing, reads, reads_items, request, segment
from .errors import KeylaneError, api_error
from .models import (
    AttemptLog,
    DamagedRow,
    Job,
    JobLike,
    Key,
    Kind,
    Reason,
    Schedule,
    Subtask,
    SubtaskView,
)

T = TypeVar("T")
Millis = Union[int, timedelta]
SubtaskLike = Union[Subtask, Mapping[str, Any]]
ResultOrder = Literal["submit", "completion", "key"]
CancelMode = Literal["graceful", "kill"]

# The server bounds a wait in a request at one minute.
MAX_WAIT = 50.0
PAGE = 1000


class JobOptions(TypedDict, total=False):
    """Options of a job, by their names in the API.

    A `timedelta` is converted to milliseconds, and a `datetime` to a time of the API.
    """

    name: str
    labels: Mapping[str, str]
    weight: int
    priority: Literal["high", "normal", "low"]
    tenant: str
    attempts: int
    timeout_ms: Millis
    delay_ms: Millis
    run_at: Union[str, datetime]
    expires_ms: Millis
    expires_at: Union[str, datetime]
    unique_ms: Millis
    after: Sequence[str]
    after_on: Literal["success", "end"]
    on_error: Literal["finish_all", "fail_fast"]
    on_fail: Literal["continue", "stop_key"]
    fan_in: bool
    max_per_key: int
    webhook: str


class Unset:
    """Absence of a payload, which may be `None`."""


UNSET = Unset()


@dataclass(frozen=True)
class Page:
    """Page of a list, with the items as JSON."""

    items: list[dict[str, Any]]
    damaged: list[DamagedRow]
    next_cursor: Optional[str]


def wire(value: Any) -> Any:
    """Returns an option as JSON has it."""
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"the time {value} has no time zone; use datetime.now(timezone.utc)")
        return value.astimezone(timezone.utc).isoformat(timespec="milliseconds")
    return value


def subtask_body(subtask: SubtaskLike) -> Mapping[str, Any]:
    """Returns a subtask as the API has it; members that are not set are left out."""
    if not isinstance(subtask, Subtask):
        return subtask
    body: dict[str, Any] = {"payload": subtask.payload}
    if subtask.key is not None:
        body["key"] = subtask.key
    if subtask.keys is not None:
        body["keys"] = subtask.keys
    if subtask.shared_keys is not None:
        body["shared_keys"] = subtask.shared_keys
    if subtask.barrier:
        body["barrier"] = True
    if subtask.latest:
        body["latest"] = True
    return body


def id_of(job: JobLike) -> str:
    return job if isinstance(job, str) else job.id


def _path(job: JobLike, *rest: str) -> str:
    return "/".join(["/v1/jobs", segment(id_of(job)), *rest])


def once(key: Optional[str] = None) -> dict[str, str]:
    """Returns the header by which repeated requests count once."""
    return {"idempotency-key": key or uuid.uuid4().hex}


# Jobs


@dataclass(frozen=True)
class Target:
    """Place and headers of a submission."""

    method: str
    path: str
    headers: dict[str, str]
    wait: float


def target(
    id: Optional[str],
    idempotency_key: Optional[str],
    wait: Optional[float],
    traceparent: Optional[str],
    tracestate: Optional[str],
) -> Target:
    headers: dict[str, str] = {}
    if wait:
        headers["prefer"] = f"wait={max(1, round(min(wait, MAX_WAIT)))}"
    if traceparent:
        headers["traceparent"] = traceparent
    if tracestate:
        headers["tracestate"] = tracestate
    if id is not None:
        if idempotency_key is not None:
            raise ValueError("id and idempotency_key are both given; an id already makes it once")
        return Target("PUT", _path(id), headers, min(wait or 0.0, MAX_WAIT))
    headers.update(once(idempotency_key))
    return Target("POST", "/v1/jobs", headers, min(wait or 0.0, MAX_WAIT))


def job_body(kind: str, work: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the body of a submission; members that are `None`, but the payload, are left out."""
    body: dict[str, Any] = {"kind": kind}
    for name, value in work.items():
        if name == "payload":
            if not isinstance(value, Unset):
                body[name] = value
        elif value is not None:
            body[name] = value
    body.update({name: wire(value) for name, value in options.items() if value is not None})
    return body


def submit(target: Target, body: Mapping[str, Any]) -> Request[Job]:
    return request(
        target.method, target.path, reads(Job), headers=target.headers, json=body, wait=target.wait
    )


def submit_batch(
    jobs: Sequence[Mapping[str, Any]], atomic: bool, idempotency_key: Optional[str]
) -> Request[list[Union[Job, KeylaneError]]]:
    bodies = [{name: wire(value) for name, value in job.items()} for job in jobs]
    return request(
        "POST",
        "/v1/jobs/batch",
        _read_batch,
        query=None if atomic else {"atomic": "false"},
        headers=once(idempotency_key),
        json={"jobs": bodies},
    )


def _read_batch(response: httpx.Response) -> list[Union[Job, KeylaneError]]:
    return [
        decode(Job, item["job"])
        if item.get("job")
        else api_error(item["status"], item.get("problem") or {})
        for item in response.json()["items"]
    ]


def job(job: JobLike) -> Request[Job]:
    return request("GET", _path(job), reads(Job))


def job_after(job: JobLike, version: int, wait: float) -> Request[Optional[Job]]:
    """Waits until the job has another version; `None` if it has the same after `wait` seconds."""
    wait = max(1, round(min(wait, MAX_WAIT)))
    headers = {"prefer": f"wait={wait}", "if-none-match": f'W/"{version}"'}
    return request("GET", _path(job), _read_if_changed, headers=headers, wait=wait)


def _read_if_changed(response: httpx.Response) -> Optional[Job]:
    if response.status_code == httpx.codes.NOT_MODIFIED:
        return None
    return decode(Job, response.json())


def page(path: str, query: Mapping[str, Any], cursor: Optional[str]) -> Request[Page]:
    return request("GET", path, _read_page, query={**query, "cursor": cursor})


def _read_page(response: httpx.Response) -> Page:
    data = response.json()
    damaged = [decode(DamagedRow, row) for row in data.get("damaged") or ()]
    return Page(data["items"], damaged, data.get("next_cursor"))


def jobs_query(
    state: Union[str, Sequence[str], None],
    kind: Optional[str],
    label: Optional[str],
    tenant: Optional[str],
    search: Optional[str],
) -> dict[str, Any]:
    states = state if state is None or isinstance(state, str) else ",".join(state)
    return {
        "state": states,
        "kind": kind,
        "label": label,
        "tenant": tenant,
        "q": search,
        "limit": PAGE,
    }


def results_path(job: JobLike) -> str:
    return _path(job, "results")


def subtasks_path(job: JobLike) -> str:
    return _path(job, "subtasks")


def events_path(job: Optional[JobLike]) -> str:
    return "/v1/events" if job is None else _path(job, "events")


def subtask(job: JobLike, number: int) -> Request[SubtaskView]:
    return request("GET", _path(job, "subtasks", str(number)), reads(SubtaskView))


def logs(job: JobLike, number: int) -> Request[list[AttemptLog]]:
    return request("GET", _path(job, "subtasks", str(number), "logs"), reads_items(AttemptLog))


def explain(job: JobLike) -> Request[list[Reason]]:
    def read(response: httpx.Response) -> list[Reason]:
        return [decode(Reason, item) for item in response.json()["because"]]

    return request("GET", _path(job, "explain"), read)


def cancel(job: JobLike, mode: CancelMode, reason: Optional[str]) -> Request[Job]:
    body = {"mode": mode, **reason_body(reason)}
    return request("POST", _path(job, "cancel"), reads(Job), headers=once(), json=body)


def control(job: JobLike, what: Literal["pause", "resume"]) -> Request[Job]:
    return request("POST", _path(job, what), reads(Job), headers=once())


def retry(
    job: JobLike,
    only: Literal["failed", "unsuccessful"],
    subtasks: Optional[Sequence[Union[int, Mapping[str, Any]]]],
) -> Request[Job]:
    body: dict[str, Any] = {"only": only}
    if subtasks is not None:
        chosen = [{"number": item} if isinstance(item, int) else item for item in subtasks]
        body = {"subtasks": chosen}
    return request("POST", _path(job, "retry"), reads(Job), headers=once(), json=body)


def update(job: JobLike, version: Optional[int], changes: Mapping[str, Any]) -> Request[Job]:
    if version is None:
        if isinstance(job, str):
            raise ValueError("version is missing; give the version of the job, or the job itself")
        version = job.version
    headers = {**once(), "if-match": f'W/"{version}"'}
    return request("PATCH", _path(job), reads(Job), headers=headers, json=changes)


def delete(job: JobLike) -> Request[None]:
    return request("DELETE", _path(job), nothing, headers=once())


# Keys: by query, so that a key such as `..` or `a/b` passes every proxy.


def keys(sort: Optional[str], limit: int) -> Request[list[Key]]:
    return request("GET", "/v1/keys", reads_items(Key), query={"sort": sort, "limit": limit})


def key(name: str) -> Request[Optional[Key]]:
    def read(response: httpx.Response) -> Optional[Key]:
        found = reads_items(Key)(response)
        return found[0] if found else None

    return request("GET", "/v1/keys", read, query={"key": name})


def steer_key(name: str, what: str) -> Request[Key]:
    query = {"key": name, "what": what}
    return request("POST", "/v1/keys", reads(Key), query=query, headers=once())


# Kinds


def kinds() -> Request[list[Kind]]:
    return request("GET", "/v1/kinds", reads_items(Kind))


def kind(name: str) -> Request[Kind]:
    return request("GET", f"/v1/kinds/{segment(name)}", reads(Kind))


def steer_kind(name: str, what: str, body: Optional[Mapping[str, Any]]) -> Request[Kind]:
    path = f"/v1/kinds/{segment(name)}/{what}"
    return request("POST", path, reads(Kind), headers=once(), json=body)


def reason_body(reason: Optional[str]) -> dict[str, str]:
    return {} if reason is None else {"reason": reason}


def change_kind(name: str, changes: Mapping[str, Any]) -> Request[Kind]:
    body = {setting: wire(value) for setting, value in changes.items() if value is not None}
    path = f"/v1/kinds/{segment(name)}"
    return request("PATCH", path, reads(Kind), headers=once(), json=body)


# Schedules

SCHEDULES = "/v1/schedules"


def schedule(name: str) -> Request[Schedule]:
    return request("GET", f"{SCHEDULES}/{segment(name)}", reads(Schedule))


def put_schedule(name: str, body: Mapping[str, Any]) -> Request[Schedule]:
    given = {member: value for member, value in body.items() if value is not None}
    given["job"] = {member: wire(value) for member, value in given["job"].items()}
    path = f"{SCHEDULES}/{segment(name)}"
    return request("PUT", path, reads(Schedule), headers=once(), json=given)


def steer_schedule(name: str, what: Literal["pause", "resume"]) -> Request[Schedule]:
    return request("POST", f"{SCHEDULES}/{segment(name)}/{what}", reads(Schedule), headers=once())


def run_schedule(name: str) -> Request[Job]:
    return request("POST", f"{SCHEDULES}/{segment(name)}/run", reads(Job), headers=once())


def delete_schedule(name: str) -> Request[None]:
    return request("DELETE", f"{SCHEDULES}/{segment(name)}", nothing, headers=once())


# Server


def version() -> Request[str]:
    return request("GET", "/version", lambda response: str(response.json()["version"]))


# Leases, for workers


@dataclass(frozen=True)
class ClaimBody:
    kinds: Sequence[str]
    worker: str
    max: int
    wait: float

    def wire(self) -> dict[str, Any]:
        return {
            "kinds": list(self.kinds),
            "worker": self.worker,
            "max": min(self.max, 1000),
            "wait_ms": round(self.wait * 1000),
        }


def claim(body: ClaimBody) -> Request[httpx.Response]:
    return request("POST", "/v1/leases", _itself, json=body.wire(), wait=body.wait)


def end_leases(ends: Sequence[bytes], claim: Optional[ClaimBody]) -> Request[httpx.Response]:
    """Ends leases; `ends` are items of the request as JSON."""
    body = b'{"leases":[' + b",".join(ends) + b"]"
    if claim is not None:
        body += b',"claim":' + encode(claim.wire())
    headers = {"content-type": "application/json"}
    wait = 0.0 if claim is None else claim.wait
    return Request("POST", "/v1/leases/complete", _itself, headers, body + b"}", wait)


def heartbeat(leases: Sequence[str]) -> Request[httpx.Response]:
    return request("POST", "/v1/leases/heartbeat", _itself, json={"leases": list(leases)})


def report_progress(lease: str, progress: float) -> Request[httpx.Response]:
    path = f"/v1/leases/{segment(lease)}/heartbeat"
    return request("POST", path, _itself, json={"progress": progress})


def _itself(response: httpx.Response) -> httpx.Response:
    return response
