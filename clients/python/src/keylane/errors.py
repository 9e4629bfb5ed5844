"""Errors of the client. Every one of them is a `KeylaneError`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from .models import DamagedRow, Job


class KeylaneError(Exception):
    """Base of all errors of this package."""


class UnreachableError(KeylaneError):
    """No server answered within the time for retries. `__cause__` has the last transport error."""


@dataclass(frozen=True)
class FieldError:
    """Invalid field of a request."""

    pointer: str
    """JSON pointer of the field; for streamed subtasks `line 7` and a pointer."""
    detail: str


class ApiError(KeylaneError):
    """A server refused the request.

    Programs read `code`, which is stable and listed in the documentation of the API; `detail` and
    `errors` are for people.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        title: str = "",
        errors: Sequence[FieldError] = (),
        instance: str = "",
        retry_after: Optional[float] = None,
    ) -> None:
        self.status = status
        self.code = code
        self.detail = detail
        self.title = title
        self.errors = tuple(errors)
        self.instance = instance
        self.retry_after = retry_after
        """Seconds to wait before another try, if the server named them."""
        named = (f"{error.pointer}: {error.detail}" for error in self.errors)
        # The detail names the first field already.
        places = "".join(f"; {place}" for place in named if place.removeprefix(": ") != detail)
        super().__init__(f"{detail} ({status} {code}){places}")


class InvalidRequestError(ApiError):
    """The request breaks a rule, and `errors` names the fields (400, 413, 415, 422)."""


class UnauthorizedError(ApiError):
    """The server needs a token, or does not know this one (401)."""


class ForbiddenError(ApiError):
    """The token lacks the role for the request (403)."""


class NotFoundError(ApiError):
    """The job, key, schedule or kind does not exist (404)."""


class GoneError(ApiError):
    """The job existed and was removed (410)."""


class ConflictError(ApiError):
    """The state of the job, or its version, does not permit the action (409, 412, 428)."""


class LeaseLostError(ConflictError):
    """The lease has ended: another worker may have the subtask (409 `lease-lost`)."""


class OverloadedError(ApiError):
    """The backlog or the connections are full, and stayed so during the retries (429)."""


class UnavailableError(ApiError):
    """The server is starting or stopping, or cannot write, and stayed so (503, 507)."""


class JobFailedError(KeylaneError):
    """A job ended as `failed` or `cancelled`. `job` has its counts and the first error."""

    def __init__(self, job: Job) -> None:
        self.job = job
        reason = f": {job.error}" if job.error else ""
        super().__init__(f"job {job.id} of kind {job.kind} ended as {job.state}{reason}")


class DamagedDataError(KeylaneError):
    """Some rows of a list are damaged in the server's store; all others were delivered before."""

    def __init__(self, rows: Sequence[DamagedRow]) -> None:
        self.rows = tuple(rows)
        first = self.rows[0].problem if self.rows else ""
        super().__init__(f"{len(self.rows)} damaged rows in the store of the server: {first}")


class TaskFailure(Exception):  # noqa: N818 - it is the outcome of a subtask, not an error of this package
    """Raised by a handler to choose what a failure means.

    `retry=False`: another attempt would fail as well. `after`: seconds to wait before the next
    attempt, in place of the kind's backoff.
    """

    def __init__(self, message: str, *, retry: bool = True, after: Optional[float] = None) -> None:
        if after is not None and not after >= 0:
            raise ValueError(f"after is {after}; give a number of seconds, 0 or more")
        super().__init__(message)
        self.retry = retry
        self.after = after


class TaskCancelled(Exception):  # noqa: N818 - as asyncio.CancelledError is
    """Raised by `Task.check_cancelled` when the result of the handler is no longer wanted."""


_BY_CODE: Mapping[str, type[ApiError]] = {"lease-lost": LeaseLostError}
_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: InvalidRequestError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    412: ConflictError,
    413: InvalidRequestError,
    415: InvalidRequestError,
    422: InvalidRequestError,
    428: ConflictError,
    429: OverloadedError,
    503: UnavailableError,
    507: UnavailableError,
}


def api_error(
    status: int, problem: Mapping[str, Any], retry_after: Optional[float] = None
) -> ApiError:
    """Returns the error for a problem document (RFC 9457)."""
    code = str(problem.get("code", ""))
    cls = _BY_CODE.get(code) or _BY_STATUS.get(status, ApiError)
    fields = [
        FieldError(str(field.get("pointer", "")), str(field.get("detail", "")))
        for field in problem.get("errors") or ()
    ]
    return cls(
        status,
        code,
        str(problem.get("detail") or problem.get("title") or "no reason given"),
        title=str(problem.get("title", "")),
        errors=fields,
        instance=str(problem.get("instance", "")),
        retry_after=retry_after,
    )
