"""Errors of namespaces, without any: each is one sentence, not a traceback."""

from __future__ import annotations

import subprocess

import pytest

from campaigns.cluster import namespaces
from campaigns.cluster.namespaces import NoNamespacesError


def test_a_holder_that_ended_has_no_namespace() -> None:
    with subprocess.Popen(["true"]) as gone:
        pass
    with pytest.raises(NoNamespacesError, match=f"made no namespace: .*/proc/{gone.pid}/ns/net"):
        namespaces._await_namespace(gone.pid)


def test_a_command_that_fails_hangs_or_is_absent_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "RUN_S", 0.05)
    with pytest.raises(NoNamespacesError, match=r"ls /no/such: .*No such file"):
        namespaces._run("ls", "/no/such")
    with pytest.raises(NoNamespacesError, match=r"sleep 60: .*timed out"):
        namespaces._run("sleep", "60")
    with pytest.raises(NoNamespacesError, match=r"no-such-program: .*No such file"):
        namespaces._run("no-such-program")
