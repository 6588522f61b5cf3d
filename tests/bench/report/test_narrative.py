from __future__ import annotations

import attrs
import pytest
from msgspec.structs import replace

from blumfeld_bench.report.narrative import (
    ack_words,
    brief,
    cautions,
    ceiling_words,
    late_words,
    load_words,
    mark_of,
    nodes_words,
    offered_words,
    run_words,
)
from blumfeld_bench.result import Failure, Placement, Result
from blumfeld_bench.statistics.cells import cells_of
from blumfeld_bench.workload import Consume, Produce, Step
from tests.bench.synthetic import CATCH_UP, CLOSED, OPEN, synthetic_result


def warned(result: Result) -> str:
    return "\n".join(cautions(result, cells_of(result)))


def test_a_clean_run_needs_no_caution() -> None:
    assert warned(synthetic_result(steps=(OPEN,))) == ""


def test_a_closed_loop_is_named_so() -> None:
    assert warned(synthetic_result(steps=(OPEN, CLOSED))) == (
        "Closed loop, so latencies are a saturated server's: as fast as it goes."
    )


def test_the_drivers_limit_is_said_with_its_share() -> None:
    text = warned(synthetic_result(steps=(OPEN,), ceiling=1.1))
    assert text == (
        "1,000/s: the driver's limit, not the broker's, for epoll, uring (91% of what the driver reaches alone)."
    )


def test_a_rate_that_was_not_reached_is_said() -> None:
    result = synthetic_result(steps=(OPEN,))
    measured = tuple(
        replace(round_result, records_per_s=900.0) if round_result.variant == "uring" else round_result
        for round_result in result.measured
    )
    text = warned(replace(result, measured=measured))
    assert text.startswith("1,000/s: the offered rate was not reached (uring 90.0%): a queue grew")


def test_acks_that_mean_different_things_are_said() -> None:
    result = synthetic_result(steps=(OPEN,))
    first, second = result.variants
    variants = (first, replace(second, durability="fsync"))
    text = warned(replace(result, variants=variants))
    assert text == (
        "An ack (acks=1) is not the same thing for all of them. epoll: page cache | uring: fsync."
    )


@pytest.mark.parametrize(
    ("acks", "words"), [(1, "page cache; no more"), (-1, "the ISR has it"), (0, "none: acks=0")]
)
def test_an_ack_is_said_for_the_acks_that_are_asked_for(acks: int, words: str) -> None:
    assert ack_words("acks=1: page cache; no more; acks=all: the ISR has it", acks) == words
    assert ack_words("whatever", 1) == "whatever"


def test_what_is_missing_is_said_first() -> None:
    result = replace(
        synthetic_result(steps=(OPEN,), rounds=2),
        interrupted=True,
        failures=(Failure(variant="uring", step="", round=1, error="it went away"),),
        skipped={"kafka": "one broker only"},
        system_calls_missing="no strace.",
        left_out=("9,000/s", "10,000/s"),
    )
    assert warned(result).splitlines() == [
        "kafka could not run this workload: one broker only",
        "Interrupted: what follows is of the rounds that were run.",
        "the rest of the round, uring, round 2 was not measured: it went away",
        "A quick run had no time for these steps: 9,000/s, 10,000/s.",
        "System calls were not counted: no strace.",
        "2 rounds: intervals are wide, and 5 or more are better.",
    ]


def test_a_busy_machine_and_errors_are_said() -> None:
    result = synthetic_result(steps=(OPEN,), labels=("a",))
    machine = replace(result.machine, load_before=1.5)
    measured = tuple(replace(round_result, errors=2, error="no leader") for round_result in result.measured)
    text = warned(replace(result, machine=machine, measured=measured))
    assert "load 1.50 on 2 cores" in text
    assert "1,000/s, a: 10 errors, the first: no leader" in text


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (
            OPEN,
            "4 connections offer 1,000 records/s of 64–200 B, whatever the server does, 16 keys, acks=1; "
            "1 group reads what arrives; 2 s of warm-up, 5 s measured.",
        ),
        (
            CLOSED,
            "16 connections write records of 1,024 B as fast as they are answered (closed loop), "
            "100 records a batch, acks=1; 2 s of warm-up, 5 s measured.",
        ),
        (
            CATCH_UP,
            "2 groups read from the beginning; the data is not in the page cache; 2 s of warm-up, 5 s measured.",
        ),
        (
            Step(
                name="x",
                produce=Produce(acks=-1, in_flight=5),
                consume=Consume(members=2),
                idle_connections=1000,
            ),
            "1 connection writes records of 100 B as fast as they are answered (closed loop), 5 in flight, acks=all; "
            "1 group of 2 members reads what arrives; 1,000 idle connections beside it; "
            "2 s of warm-up, 5 s measured.",
        ),
    ],
)
def test_a_load_is_said_in_words(step: Step, words: str) -> None:
    assert load_words(step) == words


def test_a_cell_says_its_marks_and_shares() -> None:
    open_cells, closed_cells = cells_of(synthetic_result(ceiling=1.0))
    assert mark_of(closed_cells.cells[0]) == "the driver's limit, not the broker's; saturated"
    assert offered_words(open_cells.cells[0]) == "100.0%"
    assert offered_words(closed_cells.cells[0]) == ""
    assert ceiling_words(open_cells.cells[0]) == "100%"
    assert late_words(open_cells.cells[0]) == "20"
    assert late_words(closed_cells.cells[0]) == ""


def test_the_line_of_a_run_says_who_ran_where() -> None:
    fair = Placement(policy="SCHED_OTHER", cores=(0, 1))
    first = Placement(policy="SCHED_RR", cores=(1,))
    result = synthetic_result(ceiling=1.0)
    assert "SCHED" not in run_words(result)
    measured = tuple(
        replace(round_result, server_placement=fair, driver=replace(round_result.driver, placement=first))
        for round_result in result.measured
    )
    placed = replace(result, measured=measured, driver_first=True)
    assert "driver SCHED_RR on core 1, server SCHED_OTHER on cores 0, 1" in run_words(placed)
    assert any("SCHED_RR" in line for line in cautions(placed, cells_of(placed)))
    assert not any("SCHED_RR" in line for line in cautions(result, cells_of(result)))


def test_a_driver_that_was_late_itself_is_a_caution() -> None:
    result = synthetic_result(ceiling=1.0)
    late = tuple(
        replace(round_result, driver=replace(round_result.driver, late_us_p99=1e9))
        for round_result in result.measured
    )
    placed = replace(result, measured=late)
    assert any("sent late" in line for line in cautions(placed, cells_of(placed)))
    assert not any("sent late" in line for line in cautions(result, cells_of(result)))


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("page cache: survives the process; a power cut doesn't", "page cache"),
        ("net_uring (io_uring (6.18: single issuer, buffer ring))", "net_uring (io_uring (6.18))"),
        ("net_asyncio (epoll)", "net_asyncio (epoll)"),
        ("saturated; 3 errors", "saturated"),
    ],
)
def test_a_cell_has_room_for_the_first_clause(text: str, head: str) -> None:
    assert brief(text) == head


def test_a_run_is_said_in_a_line() -> None:
    assert run_words(synthetic_result(rounds=1, labels=("a",))) == (
        "synthetic: 1 round, wire driver, seed 1, 2026-11-21T12:00:00Z, blumfeld 0.2.0"
    )


def test_each_node_of_a_cluster_has_its_cpu_time_and_memory() -> None:
    (cells,) = cells_of(synthetic_result(steps=(OPEN,)))
    cell = cells.cells[0]
    assert nodes_words(cell) == ""
    last = cell.rounds[-1]
    assert last.measured.server is not None
    first_node = replace(last.measured.server, user_s=1.0, system_s=0.25, rss_bytes=40_000_000)
    second_node = replace(first_node, rss_bytes=1_040_000_000)
    measured = replace(last.measured, server_nodes=(first_node, second_node))
    cluster = attrs.evolve(cell, rounds=(*cell.rounds, attrs.evolve(last, measured=measured)))
    assert nodes_words(cluster) == "1.2 s, 40 MB | 1.2 s, 1,040 MB"
    assert brief(nodes_words(cluster)) == nodes_words(cluster)
