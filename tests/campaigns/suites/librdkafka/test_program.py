"""A run of the suite ends its tests when it is told to end."""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from blumfeld.testing.endings import sigterm_unwinds
from campaigns.suites.librdkafka import program
from campaigns.waits import await_true

GIVEN = argparse.Namespace(
    scenario="default", quick=False, protocol="classic", at_once=2, peer=None, run="", skip=""
)


def test_a_suite_that_is_told_to_end_kills_its_tests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else it waits for them, and its supervisor kills it before it has stopped its brokers."""
    runner = tmp_path / "runner"
    runner.write_text("#!/bin/sh\necho >> started\nexec sleep 20\n")
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
    assert time.monotonic() - began < 10
    assert started.read_text().count("\n") == 2, "a further test was begun"
