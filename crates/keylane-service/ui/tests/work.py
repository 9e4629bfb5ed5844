"""What the real server's tests have done: a task takes so many milliseconds, and fails if it is told to."""

import json
import sys
import time

task = json.load(sys.stdin) or {}
time.sleep(task.get("ms", 0) / 1000)
if task.get("fail"):
    sys.exit("it was told to fail")
print(json.dumps({"took_ms": task.get("ms", 0)}))
