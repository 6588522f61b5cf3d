"""A campaign's processes end when it is told to end, and at its limit of time."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from blumfeld.testing.endings import TOLD_TO_END
from campaigns import supervision
from campaigns.__main__ import run
from campaigns.catalogue import Campaign, Run
from campaigns.commands import command_lines
from campaigns.waits import await_true

ROOT = Path(__file__).resolve().parents[2]
STUBBORN = """
import signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
broker = subprocess.Popen(["sleep", "20"], start_new_session=True)
open("broker", "w").write(str(broker.pid))
time.sleep(60)
"""
TOLD = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
print(flush=True)
time.sleep(60)
"""


def python(program: str) -> list[str]:
    """A command line of this Python."""
    return [sys.executable, "-c", program]


def test_the_first_that_fails_ends_the_campaign_with_its_status(capfd: pytest.CaptureFixture[str]) -> None:
    assert run([python("print(1)"), python("raise SystemExit(3)"), python("print(2)")]) == 3
    assert capfd.readouterr().out == "1\n"


def test_all_that_succeed_are_run() -> None:
    assert run([python("pass"), python("pass")]) == 0


def test_a_process_that_a_signal_ended_has_the_status_of_a_shell() -> None:
    assert run([python("import os; os.kill(os.getpid(), 9)")]) == 128 + signal.SIGKILL


def test_sigterm_reaches_the_process_and_no_further_one_starts() -> None:
    """So that the brokers of a campaign are stopped by what started them, and none is left behind."""
    lines = [python(TOLD), python("print('further')")]
    campaign = subprocess.Popen(
        python(f"import sys; from campaigns.__main__ import run; sys.exit(run({lines!r}))"),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert campaign.stdout is not None
    assert campaign.stdout.readline() == "\n"  # the process has its handler
    campaign.terminate()
    rest, _ = campaign.communicate(timeout=60)
    assert (campaign.returncode, rest) == (5, "")


def test_every_campaign_that_is_told_to_end_stops_what_it_started() -> None:
    """None has to think of it: SIGTERM ends a program where it is, and its brokers would go on."""
    campaign = Campaign("c", "Shows.", "1 min", (Run("tests.campaigns.told_to_end"),))
    (line,) = command_lines(campaign, [], {})
    process = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.terminate()
    rest, _ = process.communicate(timeout=60)
    assert (process.returncode, rest) == (TOLD_TO_END, "stopped\n")


def test_a_campaign_is_ended_at_its_limit() -> None:
    assert run([python("import time; time.sleep(60)"), python("pass")], limit_s=0.2) == supervision.TIMED_OUT


def test_a_process_that_ignores_sigterm_is_killed_with_what_it_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its brokers have sessions of their own."""
    monkeypatch.setattr(supervision, "GRACE_S", 0.2)
    monkeypatch.chdir(tmp_path)
    assert run([python(STUBBORN)], limit_s=1.0) == supervision.TIMED_OUT
    broker = Path("/proc", (tmp_path / "broker").read_text(), "stat")
    assert await_true(lambda: not broker.exists() or ") Z " in broker.read_text(), 5.0)
