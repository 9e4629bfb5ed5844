"""Workers: they lease subtasks, run handlers, and report the outcomes."""

from ._task import Task
from ._worker import Worker

__all__ = ["Task", "Worker"]
