"""What the real server's tests have done: a task takes so many milliseconds, says what it is told to on its standard
error, and fails if it is told to."""

import json
import sys
import time

task = json.load(sys.stdin) or {}
time.sleep(task.get("ms", 0) / 1000)
sys.stderr.write(task.get("say", ""))
if task.get("fail"):
    sys.exit("it was told to fail")
print(json.dumps({"took_ms": task.get("ms", 0)}))
