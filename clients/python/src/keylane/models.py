"""Answers of the service as frozen data classes.

Fields that a later server adds are ignored. The whole answer is in `raw` of the larger classes.
"""

# The annotations are read at run time to decode answers, so they use what Python 3.9 can evaluate.

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Optional, Union

from .errors import JobFailedError

JobState = Literal[
    "scheduled", "queued", "running", "paused", "cancelling", "succeeded", "failed", "cancelled"
]
SubtaskState = Literal[
    "waiting",
    "ready",
    "running",
    "backing_off",
    "succeeded",
    "failed",
    "cancelled",
    "skipped",
    "superseded",
]
ENDED_STATES = frozenset({"succeeded", "failed", "cancelled"})


@dataclass(frozen=True)
class Reason:
    """Reason for which subtasks wait."""

    reason: str
    text: str
    count: Optional[int] = None
    job: Optional[str] = None
    number: Optional[int] = None
    key: Optional[str] = None
    position: Optional[int] = None
    since: Optional[datetime] = None
    until: Optional[datetime] = None


@dataclass(frozen=True)
class Counts:
    """Number of a job's subtasks by state."""

    total: int
    waiting: int
    ready: int
    running: int
    backing_off: int
    succeeded: int
    failed: int
    cancelled: int
    superseded: int = 0


@dataclass(frozen=True)
class Job:
    """A job as it was when the server answered."""

    id: str
    kind: str
    state: JobState
    counts: Counts
    progress: float
    version: int
    created_at: datetime
    weight: int = 1
    labels: dict[str, str] = field(default_factory=dict)
    tenant: str = "default"
    priority: str = "normal"
    name: Optional[str] = None
    client_id: Optional[str] = None
    started_at: Optional[datetime] = None
    ended_at: Optional[datetime] = None
    run_at: Optional[datetime] = None
    expires_at: Optional[datetime] = None
    expired: bool = False
    after: list[str] = field(default_factory=list)
    after_failed: Optional[str] = None
    eta_ms: Optional[int] = None
    error: Optional[str] = None
    result: Any = None
    waiting_because: list[Reason] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def ended(self) -> bool:
        """Whether the job has succeeded, failed or been cancelled."""
        return self.state in ENDED_STATES

    def check(self) -> "Job":
        """Returns the job, or raises `JobFailedError` if it failed or was cancelled."""
        if self.state in ("failed", "cancelled"):
            raise JobFailedError(self)
        return self


@dataclass(frozen=True)
class SubtaskRef:
    """Subtask of some job."""

    job: str
    number: int


@dataclass(frozen=True)
class Result:
    """Outcome of a subtask."""

    number: int
    outcome: SubtaskState
    attempt: int
    ended_at: datetime
    started_at: Optional[datetime] = None
    keys: list[str] = field(default_factory=list)
    shared_keys: list[str] = field(default_factory=list)
    result: Any = None
    error: Optional[str] = None
    superseded_by: Optional[SubtaskRef] = None


@dataclass(frozen=True)
class SubtaskView:
    """State of a subtask."""

    number: int
    state: SubtaskState
    attempts: int
    keys: list[str] = field(default_factory=list)
    shared_keys: list[str] = field(default_factory=list)
    max_attempts: Optional[int] = None
    barrier: bool = False
    latest: bool = False
    payload: Any = None
    progress: Optional[float] = None
    outcome: Optional[Result] = None
    waiting_because: Optional[Reason] = None
    raw: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class AttemptLog:
    """Log of an attempt, for people."""

    attempt: int
    fence: int
    state: SubtaskState
    started_at: datetime
    text: str
    left_out_bytes: int = 0
    ended_at: Optional[datetime] = None
    base64: Optional[str] = None


@dataclass(frozen=True)
class Event:
    """Event of a stream. `job` has the state of the job for events of a job."""

    id: str
    event: str
    at: datetime
    job: Optional[Job] = None
    number: Optional[int] = None
    key: Optional[str] = None
    schedule: Optional[str] = None
    error: Optional[str] = None
    superseded_by: Optional[SubtaskRef] = None
    raw: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class KeyHead:
    """First unfinished subtask of a key: the others wait for it."""

    job: str
    number: int
    state: SubtaskState
    attempts: int
    since: datetime
    age_ms: int
    shared: bool = False


@dataclass(frozen=True)
class Key:
    """Key that is paused or has unfinished subtasks."""

    key: str
    state: Literal["open", "paused", "stopped"]
    length: int
    head: Optional[KeyHead] = None
    paused_since: Optional[datetime] = None


@dataclass(frozen=True)
class Kind:
    """A kind of jobs, with the limits that are in force."""

    name: str
    handler: str
    attempts: int
    running: int
    paused: bool
    split: bool
    fan_in: bool
    changed: list[str] = field(default_factory=list)
    concurrency: Optional[int] = None
    per_second: Optional[float] = None
    per_second_per_key: Optional[float] = None
    max_per_key: Optional[int] = None
    timeout_ms: Optional[int] = None
    retention_ms: Optional[int] = None
    pause_reason: Optional[str] = None
    paused_since: Optional[datetime] = None
    raw: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class PassedOver:
    """Time of a schedule that made no job."""

    at: datetime
    reason: str
    text: str


@dataclass(frozen=True)
class Schedule:
    """A schedule, its next times and its last job."""

    name: str
    cron: str
    time_zone: str
    overlap: Literal["allow", "skip"]
    missed: Literal["once", "skip"]
    paused: bool
    job: dict[str, Any]
    next: list[datetime]
    fired: int
    passed: int
    version: int
    created_at: datetime
    changed_at: datetime
    last_fired: Optional[datetime] = None
    last_job: Optional[str] = None
    last_passed: Optional[PassedOver] = None
    held_up: Optional[str] = None


@dataclass(frozen=True)
class DamagedRow:
    """Row of the server's store whose content is not the content that was written."""

    number: int
    problem: str
    id: Optional[str] = None


@dataclass(frozen=True)
class Lease:
    """Exclusive right of a worker to a subtask until the lease ends."""

    id: str
    job: str
    kind: str
    number: int
    attempt: int
    fence: int
    payload: Any
    expires_at: datetime
    keys: list[str] = field(default_factory=list)
    shared_keys: list[str] = field(default_factory=list)
    traceparent: Optional[str] = None
    tracestate: Optional[str] = None


@dataclass(frozen=True)
class Subtask:
    """Subtask to submit. A mapping with the same names, as in the API, is accepted too."""

    payload: Any = None
    key: Optional[str] = None
    keys: Optional[list[str]] = None
    shared_keys: Optional[list[str]] = None
    barrier: bool = False
    latest: bool = False


JobLike = Union[str, Job]
"""A job, or its id."""
