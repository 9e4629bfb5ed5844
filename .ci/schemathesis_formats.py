"""Random requests need more than the schemas: formats, keys that are not used twice, and short waits.

Used by .ci/running-server: SCHEMATHESIS_HOOKS names this file.
"""

import gc
import uuid

import schemathesis
from hypothesis import strategies as st

# With the usual thresholds a sixth of the processor time goes into looking for cycles.
gc.set_threshold(100_000, 50, 50)

MINUTES = st.sampled_from(["*", "*/15", "0", "30", "5,35", "0-10"])
HOURS = st.sampled_from(["*", "*/6", "0", "23", "8-17"])
DAYS = st.sampled_from(["*", "1", "15", "L", "1-7"])
MONTHS = st.sampled_from(["*", "1", "JAN", "*/3"])
WEEKDAYS = st.sampled_from(["*", "0", "MON-FRI", "SUN", "MON#2"])
MACROS = st.sampled_from(["@hourly", "@daily", "@weekly", "@monthly", "@yearly"])

schemathesis.openapi.format("cron", MACROS | st.tuples(MINUTES, HOURS, DAYS, MONTHS, WEEKDAYS).map(" ".join))
schemathesis.openapi.format(
    "iana-time-zone", st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"])
)

@schemathesis.hook
def before_call(context, case, kwargs):
    # A worker that asks for work waits for as long as it says, also with the reports of its leases.
    body = case.body if isinstance(case.body, dict) else {}
    for asked in (body, body.get("claim")):
        if isinstance(asked, dict) and isinstance(asked.get("wait_ms"), (int, float)):
            asked["wait_ms"] = min(asked["wait_ms"], 1)
    # Ids by chance name no job, and a job that waits for one is refused: most jobs wait for none.
    jobs = body.get("jobs")
    for job in [body, *(jobs if isinstance(jobs, list) else [])]:
        if isinstance(job, dict) and isinstance(job.get("after"), list) and len(str(job)) % 8:
            job["after"] = []
    # A pattern does not say what a URL is. Nothing is sent to a documentation address.
    for job in [body, body.get("job"), *(jobs if isinstance(jobs, list) else [])]:
        if isinstance(job, dict) and str(job.get("webhook")).startswith(("http://", "https://")):
            job["webhook"] = "https://192.0.2.1/hook"
    # Another request under a key is refused, as it should be.
    headers = case.headers or {}
    if "Idempotency-Key" in headers:
        headers["Idempotency-Key"] = str(uuid.uuid4())
