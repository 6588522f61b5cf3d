"""Servers as processes: what they use, what is left of them, what a tracer sees. Linux only, as all of bench is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from blumfeld.kernel.runtime.process_ends import has_ended
from blumfeld_bench.runs.machine import this_machine
from blumfeld_bench.runs.servers import Server, ServerError, drop_from_page_cache, start_server
from blumfeld_bench.runs.system_calls import Tracer, TracerError, missing
from blumfeld_bench.usage import reset_peak, totals, tree, used

SMALL = (sys.executable, "-S", str(Path(__file__).parents[1] / "small_server.py"), "{port}", "{folder}")
BUSY = """
import sys, time
print(flush=True); sys.stdin.readline()
began = time.process_time()
while time.process_time() - began < 0.3: sum(range(10_000))
time.sleep(0.001)
print(flush=True); sys.stdin.readline()
"""


def test_a_server_is_up_when_it_answers_and_gone_when_stopped(tmp_path: Path) -> None:
    server = start_server("small", SMALL, tmp_path / "s", files={"manifest.toml": "x"})
    try:
        assert server.answers()
        assert server.ready_s > 0
        pids = server.pids()
        assert len(pids) == 2
        assert (tmp_path / "s" / "manifest.toml").read_text() == "x"
    finally:
        server.stop()
    assert not server.answers()
    assert all(map(has_ended, pids))
    assert not (tmp_path / "s" / "data").exists()
    assert (tmp_path / "s" / "log").exists()


def test_a_server_that_ends_says_what_it_printed(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match=r"x ended; (.|\n)*no licence"):
        start_server("x", (sys.executable, "-S", "-c", "raise SystemExit('no licence')"), tmp_path / "s")
    with pytest.raises(ServerError, match="No such file"):
        start_server("x", ("/no/such/program",), tmp_path / "t")


def test_braces_in_a_command_that_are_nobodys_stay(tmp_path: Path) -> None:
    """An override may hold an inline table."""
    script = "import sys; raise SystemExit(sys.argv[1])"
    with pytest.raises(ServerError, match=r"\{a = 1\}"):
        start_server("x", (sys.executable, "-S", "-c", script, "{a = 1}"), tmp_path / "s")


def test_a_server_can_be_bound_to_a_core(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    server = start_server("small", SMALL, tmp_path / "s", cores=frozenset({core}))
    try:
        assert {frozenset(os.sched_getaffinity(pid)) for pid in server.pids()} == {frozenset({core})}
    finally:
        server.stop()


def test_usage_is_of_the_part_between_two_looks() -> None:
    """0.3 s of CPU time, to a few ms, where ticks alone would know it to 10."""
    with subprocess.Popen(
        [sys.executable, "-S", "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdout.readline()
            before = totals([process.pid])
            process.stdin.write(b"\n")
            process.stdout.readline()
            usage = used(before, totals([process.pid]))
            assert usage.user_s + usage.system_s == pytest.approx(0.31, abs=0.03)
            assert usage.user_s > usage.system_s
            assert usage.rss_bytes > 4e6
            assert usage.voluntary_switches >= 1
        finally:
            process.kill()


def test_the_peak_begins_anew() -> None:
    script = "x = bytearray(60_000_000); del x; print(flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        assert totals([process.pid]).rss_max_bytes > 60e6
        reset_peak([process.pid])
        assert totals([process.pid]).rss_max_bytes < 30e6
    finally:
        process.kill()
        process.communicate()


def test_the_tree_follows_children_into_sessions_of_their_own() -> None:
    script = "import os, time\nif os.fork() == 0: os.setsid()\ntime.sleep(90)"
    process = subprocess.Popen([sys.executable, "-S", "-c", script], start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while len(tree(process.pid)) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        pids = tree(process.pid)
        assert len(pids) == 2
        assert process.pid in pids
        assert os.getpid() not in pids
    finally:
        for pid in tree(process.pid):
            os.kill(pid, 9)
        process.wait()


def test_a_process_that_has_ended_used_nothing() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert totals([process.pid]).cpu_s == 0
    reset_peak([process.pid])


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return start_server("small", SMALL, tmp_path / "s")


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_the_tracer_counts_calls_of_all_processes_between_the_marks(server: Server, tmp_path: Path) -> None:
    """Each answer is one accept and one send, at least; nothing is counted after the end."""
    tracer = Tracer(server.pids(), tmp_path / "calls")
    try:
        tracer.measuring_begins()
        assert tracer.error == ""
        assert all(server.answers() for _ in range(20))
        tracer.measuring_ended()
        assert server.answers()
        calls = tracer.calls()
        assert calls["accept4"] in (20, 21)
        assert calls["sendto"] == 20
        assert list(calls.values()) == sorted(calls.values(), reverse=True)
    finally:
        tracer.close()
        server.stop()


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_a_tracer_that_finds_nobody_says_so(tmp_path: Path) -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    tracer = Tracer([process.pid], tmp_path / "calls")
    tracer.measuring_begins()
    tracer.measuring_ended()
    with pytest.raises(TracerError, match=r"(?i)no such process|not permitted"):
        tracer.calls()


def test_dropping_from_the_page_cache_keeps_the_data(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    file = tmp_path / "t-0" / "0.log"
    file.write_bytes(b"x" * 100_000)
    assert drop_from_page_cache(tmp_path) == 100_000
    assert file.read_bytes() == b"x" * 100_000


def test_the_machine_is_described() -> None:
    machine = this_machine()
    assert machine.cores == len(os.sched_getaffinity(0))
    assert machine.memory_bytes > 1e8
    assert machine.kernel.startswith("Linux")
    assert machine.cpu
