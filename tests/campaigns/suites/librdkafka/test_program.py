"""A run of the suite ends its tests when it is told to end."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from blumfeld.testing.endings import sigterm_unwinds
from campaigns.suites.librdkafka import program
from campaigns.waits import await_true

GIVEN = argparse.Namespace(
    scenario="default", quick=False, protocol="classic", at_once=2, peer=None, run="", skip=""
)


class SlowlyStarted(subprocess.Popen[bytes]):
    """Runs for a while before its thread goes on, as in a large process."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        time.sleep(0.2)


@pytest.mark.parametrize("started_by", [subprocess.Popen, SlowlyStarted])
def test_a_suite_that_is_told_to_end_kills_its_tests(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, started_by: type[subprocess.Popen[bytes]]
) -> None:
    """Else it waits for them, and its supervisor kills it before it has stopped its brokers."""
    monkeypatch.setattr(subprocess, "Popen", started_by)
    runner = tmp_path / "runner"
    runner.write_text("#!/bin/sh\necho >> started\nexec sleep 60\n")
    runner.chmod(0o755)
    monkeypatch.setattr(program, "_ready", lambda: tmp_path)
    monkeypatch.setattr(program, "_version_of", lambda _: "0")
    monkeypatch.setattr(program, "_runner", lambda _: runner)
    monkeypatch.setattr(program, "_prepared", lambda *_: tmp_path)
    monkeypatch.setattr(program, "_tests", lambda _: ["0001-a", "0002-b", "0003-c"])
    started = tmp_path / "started"

    def told_to_end() -> None:
        await_true(lambda: started.exists() and started.read_text().count("\n") == 2, 10.0, 0.001)
        os.kill(os.getpid(), signal.SIGTERM)

    suite, began = program.RdkafkaSuite(GIVEN), time.monotonic()
    teller = threading.Thread(target=told_to_end)
    teller.start()
    with pytest.raises(SystemExit), sigterm_unwinds():
        suite.run("127.0.0.1:1", tmp_path / "log")
    teller.join()
    assert time.monotonic() - began < 30
    assert started.read_text().count("\n") == 2, "a further test was begun"
