"""The two clients have the same methods, with the same parameters and descriptions."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from keylane import AsyncClient, Client, aio, client

PAIRS = [
    (Client, AsyncClient),
    (client.Keys, aio.AsyncKeys),
    (client.Kinds, aio.AsyncKinds),
    (client.Schedules, aio.AsyncSchedules),
]
# They differ by what an asynchronous program can have.
PARAMETERS = {"http", "subtasks"}


def methods(cls: type) -> dict[str, Any]:
    members = vars(cls).items()
    return {name: member for name, member in members if callable(member) and name[0] != "_"}


@pytest.mark.parametrize(("sync", "asynchronous"), PAIRS)
def test_methods_are_the_same(sync: type, asynchronous: type) -> None:
    ours, theirs = methods(sync), methods(asynchronous)
    assert list(ours) == list(theirs)
    for name, method in [*ours.items(), ("__init__", sync.__init__)]:  # type: ignore[misc]
        twin = getattr(asynchronous, name)
        assert shown(method) == shown(twin), name
        if name not in ("__init__", "submit"):
            assert method.__doc__ == twin.__doc__, name
            assert inspect.iscoroutinefunction(twin) or inspect.isasyncgenfunction(twin), name


def shown(method: Any) -> list[str]:
    parameters = inspect.signature(method).parameters.values()
    return [
        parameter.name if parameter.name in PARAMETERS | {"client"} else str(parameter)
        for parameter in parameters
    ]
