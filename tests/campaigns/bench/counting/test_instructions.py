"""The parts of a count, and the counting itself where valgrind and strace are."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from blumfeld.testing import EmbeddedBroker
from blumfeld_bench.runs.system_calls import calls_by_name
from campaigns.bench.counting import steps
from campaigns.bench.counting.instructions import Cost, MakeLoad, per_request, table, whole_turns
from campaigns.bench.counting.lockstep import CatchUp, Produce, Tail, make_topic
from campaigns.bench.counting.programs import Program, start, total_instructions
from campaigns.bench.counting.transactions import ManyPartitions, OldTransactions, Transactions
from tests.shared_facts import shared_path

STRACE_SUMMARY = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 92.83    0.023399        3342         7         1 futex
  0.83    0.000208          29      1024           epoll_wait
------ ----------- ----------- --------- --------- ----------------
100.00    0.025207          86      1031         1 total
"""


def test_a_strace_summary_is_read_with_and_without_errors(tmp_path: Path) -> None:
    (tmp_path / "summary").write_text(STRACE_SUMMARY)
    assert calls_by_name(tmp_path / "summary") == {"futex": 7, "epoll_wait": 1024}


def test_a_profile_of_several_threads_is_the_sum(tmp_path: Path) -> None:
    (tmp_path / "profile").write_text("events: Ir\nsummary: 7\n\ntotals: 12\nevents: Ir\ntotals: 30\n")
    assert total_instructions(tmp_path / "profile") == 42


def test_what_both_counts_have_in_common_is_not_in_the_rate() -> None:
    """Attaching costs some calls, once; what rounds to nothing is left out."""
    once = {"read": 10, "recvfrom": 100, "futex": 3}
    twice = {"read": 10, "recvfrom": 200, "futex": 3, "sendto": 100, "mmap": 0}
    assert list(per_request(once, twice, 100).items()) == [("recvfrom", 1.0), ("sendto", 1.0)]


@pytest.mark.parametrize(
    ("requests", "connections", "rounded"), [(1024, 16, 1024), (1, 16, 16), (129, 128, 256)]
)
def test_requests_come_in_whole_turns(requests: int, connections: int, rounded: int) -> None:
    assert whole_turns(requests, connections) == rounded


def test_the_table_compares_rows_of_the_same_connections_with_the_first_server() -> None:
    costs = [Cost("ours", 16, 75_000, {"sendto": 1.0}), Cost("ours", 1, 50_000, {})]
    costs += [Cost("floor", 16, 50_000, {}), Cost("floor", 1, 100_000, {})]
    console = Console(width=120)
    with console.capture() as captured:
        console.print(table(costs, 1024))
    rows = [line.split("│") for line in captured.get().splitlines() if "floor" in line]
    assert [(row[1].strip(), row[4].strip()) for row in rows] == [("1", "0.50×"), ("16", "1.50×")]


@pytest.mark.parametrize("make", [Produce, Tail, CatchUp])
def test_lockstep_requests_are_answered_by_a_broker(make: MakeLoad) -> None:
    """Partly made by hand, so a broker has to say that they are right; a fetch without records is an error."""
    with EmbeddedBroker() as broker:
        port = broker.port
        make_topic(port)
        load = make(port, 3)
        load.run(6)
        load.run(63)  # each reader of CatchUp begins anew
        load.close()


@pytest.mark.parametrize("make", [ManyPartitions, Transactions, OldTransactions])
def test_requests_over_many_partitions_are_answered_by_a_broker(make: MakeLoad) -> None:
    with EmbeddedBroker() as broker:
        load = make(broker.port, 3)
        load.run(6)
        load.run(6)
        load.close()


def test_an_error_in_an_answer_is_not_counted_as_work() -> None:
    with EmbeddedBroker() as broker:
        load = Produce(broker.port, 1)
        with pytest.raises(RuntimeError, match="error 3"):
            load.run(1)
        load.close()


def test_steps_add_up_to_the_whole() -> None:
    """Each function is a step once and is taken off one other, so that nothing is counted twice or left out."""
    taken = [function for step in steps.STEPS for function in step.less]
    functions = [step.function for step in steps.STEPS]
    assert sorted([*taken, steps.ALL]) == sorted(functions)


def test_steps_are_functions_that_there_are() -> None:
    """A step whose function has another name now would count nothing."""
    for step in steps.STEPS:
        if step.function != steps.ALL:
            module, _, path = step.function.partition(":")
            owner, _, name = path.rpartition(".")
            assert name in vars(getattr(importlib.import_module(module), owner))


@pytest.mark.slow
@pytest.mark.skipif(
    not (shutil.which("valgrind") and shutil.which("strace")), reason="counts by valgrind, strace"
)
def test_a_request_costs_at_most_one_and_a_half_floors_and_no_more_system_calls(tmp_path: Path) -> None:
    """The bound that the request path is held to, at 16 connections on epoll."""
    floor = shared_path("floor/floor_epoll.py")
    command = [sys.executable, "-m", "campaigns.bench.counting.instructions", "--floor", str(floor)]
    command += ["--connections", "16", "--requests", "512", "--out", str(tmp_path / "out.json")]
    subprocess.run(command, check=True, timeout=400)
    ours, bare = json.loads((tmp_path / "out.json").read_text())["costs"]
    assert ours["instructions"] <= 1.5 * bare["instructions"]
    assert sum(ours["system_calls"].values()) <= sum(bare["system_calls"].values())


def test_a_module_of_the_campaigns_serves_from_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """campaigns/ is not installed: without a path to it `-m` finds nothing in the server's folder."""
    monkeypatch.chdir(Path(__file__).resolve().parents[4])
    run = [
        sys.executable,
        "-m",
        "campaigns.bench.counting.ring_in_bites",
        "run",
        "--data-dir",
        "{folder}/data",
    ]
    running = start(Program("ours", [*run, "--listen", "127.0.0.1:{port}"], bare=False), tmp_path / "server")
    try:
        assert running.server.is_up
    finally:
        running.stop()
