"""The fixtures for pytest, as a project uses them."""

from __future__ import annotations

import pytest

from keylane.testing import Server, ServerError, to_toml


def test_a_project_configures_its_server(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from keylane import Client

        @pytest.fixture
        def keylane_kinds():
            return {"render": {"lease": "30s", "attempts": 3}}

        @pytest.fixture
        def keylane_settings():
            return {"environment": "test"}

        def test_render(keylane_server):
            with Client(keylane_server.url) as client:
                assert [kind.name for kind in client.kinds.list()] == ["render"]
                job = client.submit("render", 1)
                keylane_server.restart()
                assert client.job(job).counts.total == 1
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_a_server_that_does_not_start_shows_why() -> None:
    with pytest.raises(ServerError, match="wroker"), Server({"task": {"wroker": ["cat"]}}):
        pass


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KEYLANE_PROGRAM")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sysconfig.get_path", lambda name: "/nowhere")
    reason = "set KEYLANE_PROGRAM to its path"
    with pytest.raises(ServerError, match=reason), Server({}):
        pass


def test_tables_are_written_as_toml() -> None:
    kinds = {"a.b": {"command": ["cat", "-"], "limits": {"files": 3}, "burst": None}}
    assert to_toml({"server": {"history": False}, "kinds": kinds}).splitlines() == [
        '["server"]',
        '"history" = false',
        '["kinds"]',
        '["kinds"."a.b"]',
        '"command" = ["cat", "-"]',
        '["kinds"."a.b"."limits"]',
        '"files" = 3',
    ]
    with pytest.raises(TypeError, match="cannot be in a configuration"):
        to_toml({"server": {"slots": {1, 2}}})
