"""Client and workers of Keylane, a durable task service that keeps the order per key.

    from keylane import Client

    with Client("http://127.0.0.1:7420") as client:
        job = client.submit("render", {"page": 1}, key="album-7")
        print(client.wait(job).state)

`AsyncClient` is its twin for asyncio, and `Worker` runs subtasks.
"""

from ._calls import JobOptions
from .aio import AsyncClient
from .client import Client
from .errors import (
    ApiError,
    ConflictError,
    DamagedDataError,
    FieldError,
    ForbiddenError,
    GoneError,
    InvalidRequestError,
    JobFailedError,
    KeylaneError,
    LeaseLostError,
    NotFoundError,
    OverloadedError,
    TaskCancelled,
    TaskFailure,
    UnauthorizedError,
    UnavailableError,
    UnreachableError,
)
from .models import (
    AttemptLog,
    Counts,
    DamagedRow,
    Event,
    Job,
    Key,
    KeyHead,
    Kind,
    Lease,
    PassedOver,
    Reason,
    Result,
    Schedule,
    Subtask,
    SubtaskRef,
    SubtaskView,
)
from .worker import Task, Worker

__all__ = [
    "ApiError",
    "AsyncClient",
    "AttemptLog",
    "Client",
    "ConflictError",
    "Counts",
    "DamagedDataError",
    "DamagedRow",
    "Event",
    "FieldError",
    "ForbiddenError",
    "GoneError",
    "InvalidRequestError",
    "Job",
    "JobFailedError",
    "JobOptions",
    "Key",
    "KeyHead",
    "KeylaneError",
    "Kind",
    "Lease",
    "LeaseLostError",
    "NotFoundError",
    "OverloadedError",
    "PassedOver",
    "Reason",
    "Result",
    "Schedule",
    "Subtask",
    "SubtaskRef",
    "SubtaskView",
    "Task",
    "TaskCancelled",
    "TaskFailure",
    "UnauthorizedError",
    "UnavailableError",
    "UnreachableError",
    "Worker",
]
