"""Worker for the tests with a real server: a task takes `ms` milliseconds, writes its text to its standard
error, and fails if `fail` is set."""

import json
import sys
import time

task = json.load(sys.stdin) or {}
time.sleep(task.get("ms", 0) / 1000)
sys.stderr.write(task.get("say", ""))
if task.get("fail"):
    sys.exit("it was told to fail")
print(json.dumps({"took_ms": task.get("ms", 0)}))
