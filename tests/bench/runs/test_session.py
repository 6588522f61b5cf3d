"""A run as a whole, with real processes for servers and a driver that makes no load."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import msgspec
import pytest

from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.plan.variants import VariantSpec, parse_variants, specs_of
from blumfeld_bench.result import Result, load_result, save_result
from blumfeld_bench.runs.servers import start_server
from blumfeld_bench.runs.session import Options, SessionError, run_session
from blumfeld_bench.runs.system_calls import missing
from blumfeld_bench.statistics.verdict import conclude
from blumfeld_bench.usage import placement_of
from blumfeld_bench.workload import Consume, Produce, Step, Topic, Workload
from tests.bench.fakes import FakeDriver, Heard

SMALL = Path(__file__).parents[1] / "small_server.py"
STEP = Step(name="load", produce=Produce(rate_per_s=1000.0), consume=Consume(), warm_up_s=1, measure_s=2)
WORKLOAD = Workload(name="w", description="d", topic=Topic(partitions=1), steps=(STEP,))
SPARE = Options(rounds=4, system_calls=False)
ONE = Options(rounds=1, system_calls=False)


def small(*labels: str, brokers: int = 1, more: str = "--warm-up 0") -> tuple[VariantSpec, ...]:
    """Foreign variants that are up at once."""
    start = f"{sys.executable} -S {SMALL} {{port}} {{folder}} {brokers} {{id}}"
    return parse_variants(
        [f"kafka://127.0.0.1:0 --label {label} --start {shlex.quote(start)} {more}" for label in labels]
    )


def run(
    driver: FakeDriver,
    options: Options = SPARE,
    specs: tuple[VariantSpec, ...] = (),
    workload: Workload = WORKLOAD,
) -> tuple[Result, Heard]:
    heard = Heard()
    result = run_session(specs or small("a", "b"), workload, lambda _workload, _first: driver, options, heard)
    return result, heard


def test_rounds_go_forward_and_back_on_fresh_data_with_the_same_seed(tmp_path: Path) -> None:
    driver = FakeDriver()
    result, _ = run(driver)
    assert [round_result.variant for round_result in result.measured] == [
        "a",
        "b",
        "b",
        "a",
        "a",
        "b",
        "b",
        "a",
    ]
    assert [round_result.position for round_result in result.measured] == list(range(8))
    seeds = [task.seed for task in driver.tasks]
    assert seeds[0::2] == seeds[1::2]  # both variants of a round
    assert len(set(seeds)) == 4
    assert len({task.port for task in driver.tasks}) > 1
    assert all(round_result.ready_s > 0 for round_result in result.measured)
    assert result.rounds == 4
    assert driver.closed
    assert not result.interrupted
    save_result(result, tmp_path / "r.json")
    assert load_result(tmp_path / "r.json") == result


def test_the_watcher_hears_it_in_order() -> None:
    _, heard = run(FakeDriver())
    assert heard.said[:5] == [
        "started",
        "doing: trying a",
        "doing: trying b",
        "planned",
        "doing: measuring what the driver reaches alone in load",
    ]
    turn = ["turn 0 a", "step load 3", "progress", "measured"]
    assert heard.said[5:9] == turn
    assert heard.said[-2:] == ["verdict", "ended False"]
    assert heard.said.count("verdict") == 2  # after the third round and the fourth
    assert [turn.variant for turn in heard.plans[-1].turns] == ["a", "b", "b", "a", "a", "b", "b", "a"]


def test_a_slower_variant_is_found_from_the_drivers_histograms() -> None:
    """Percentiles come through: b's driver saw 0.5 ms where a's saw 0.3 ms, give or take a little."""
    order = [0, 1, 1, 0] * 2

    def latency_ns(call: int) -> float:
        return (500_000 if order[call] else 300_000) * (1 + 0.01 * (call % 3))

    result, _ = run(FakeDriver(latency_ns))
    p99 = conclude(result).of("load", "b", "produce_p99")
    assert p99 is not None
    assert p99.different
    assert 1.6 < p99.ratio < 1.75


def test_a_failed_step_is_recorded_and_the_run_goes_on() -> None:
    driver = FakeDriver(fail=lambda call: DriverError("REFUSED") if call == 1 else None)
    result, heard = run(driver)
    assert [(failure.variant, failure.step, failure.round, failure.error) for failure in result.failures] == [
        ("b", "load", 0, "REFUSED")
    ]
    assert len(result.measured) == 7
    assert "failed load: REFUSED" in heard.said
    p99 = conclude(result).of("load", "b", "produce_p99")
    assert p99 is not None
    assert p99.rounds == 3


def test_ctrl_c_leaves_what_was_measured() -> None:
    driver = FakeDriver(fail=lambda call: KeyboardInterrupt() if call == 3 else None)
    result, heard = run(driver)
    assert result.interrupted
    assert [round_result.variant for round_result in result.measured] == ["a", "b", "b"]
    assert heard.said[-1] == "ended True"
    assert driver.closed


def test_a_variant_with_too_few_brokers_is_skipped_with_its_reason() -> None:
    workload = Workload(
        name="w", description="d", topic=Topic(partitions=1, replication_factor=3), steps=(STEP,)
    )
    specs = (*small("one"), *small("three", brokers=3))
    result, heard = run(FakeDriver(), ONE, specs, workload)
    assert result.skipped == {"one": "3 replicas need as many brokers; the cluster has 1"}
    assert {round_result.variant for round_result in result.measured} == {"three"}
    assert [variant.label for variant in heard.plans[-1].variants] == ["three"]


def test_a_run_that_nobody_can_make_is_refused() -> None:
    specs = parse_variants(["kafka://127.0.0.1:0 --label no --start 'false {port}'"])
    with pytest.raises(SessionError, match="no ended"):
        run(FakeDriver(), SPARE, specs)


def test_a_server_that_somebody_else_started_has_no_usage(tmp_path: Path) -> None:
    server = start_server("mine", small("mine")[0].variant.command, tmp_path / "s")
    try:
        specs = parse_variants([f"kafka://127.0.0.1:{server.port} --running --label theirs"])
        result, _ = run(FakeDriver(), Options(rounds=1), specs)
    finally:
        server.stop()
    assert result.measured[0].server is None
    assert result.system_calls == ()


def test_a_preload_and_a_warm_up_come_before_the_steps() -> None:
    workload = Workload(
        name="w", description="d", topic=Topic(partitions=1), preload_bytes=5000, steps=(STEP,)
    )
    driver = FakeDriver()
    run(driver, ONE, small("jvm", more="--warm-up 7"), workload)
    assert [(task.step.name, task.step.measure_s) for task in driver.tasks] == [("warm-up", 7), ("load", 2)]
    assert driver.tasks[0].topic != driver.tasks[1].topic
    assert driver.preloads == [5000]


def test_a_ceiling_that_cannot_be_measured_is_missing_and_steps_of_one_shape_share_one() -> None:
    ladder = tuple(
        Step(name=f"{rate:g}/s", produce=Produce(rate_per_s=rate), consume=Consume()) for rate in (10.0, 20.0)
    )
    other = Step(name="no ceiling", produce=Produce(connections=7))
    workload = Workload(name="w", description="d", topic=Topic(partitions=1), steps=(*ladder, other))
    driver = FakeDriver()
    result, _ = run(driver, ONE, small("a"), workload)
    assert driver.ceilings == ["10/s", "no ceiling"]
    assert [ceiling.step for ceiling in result.ceilings] == ["10/s", "20/s"]


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_system_calls_are_counted_after_the_rounds() -> None:
    """The small server's main thread polls; the driver makes no load, so there is little, but it is seen."""
    result, heard = run(FakeDriver(), Options(rounds=1), small("a"))
    assert result.system_calls_missing == ""
    assert [(count.variant, count.step, count.requests) for count in result.system_calls] == [
        ("a", "load", 2000)
    ]
    counting = heard.said.index("doing: counting system calls of a")
    assert counting > heard.said.index("measured")


def test_a_result_can_be_run_again() -> None:
    specs = (*parse_variants(["default --set network.options.busy_poll_us=0"]), *small("b"))
    result, _ = run(FakeDriver(), ONE, small("a"))
    again = specs_of(msgspec.structs.replace(result, variants=tuple(spec.variant for spec in specs)))
    assert again == specs


def test_binding_keeps_the_driver_off_the_servers_core_and_is_undone() -> None:
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        pytest.skip("one core")
    seen: list[set[int]] = []

    def fail(call: int) -> None:
        seen.append(os.sched_getaffinity(0))

    result, _ = run(FakeDriver(fail=fail), Options(rounds=1, system_calls=False, pin=True), small("a"))
    assert seen == [cores - {min(cores)}]
    assert os.sched_getaffinity(0) == cores
    assert result.pinned


def test_nobody_goes_first_unless_asked() -> None:
    """The server's scheduler class and cores are read from its process, and the result keeps them."""
    result, _ = run(FakeDriver(), ONE, small("a"))
    assert not result.driver_first
    (measured,) = result.measured
    assert measured.server_placement == placement_of()
    assert measured.server_placement.policy == "SCHED_OTHER"


def test_to_go_first_where_it_is_forbidden_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was asked for it and is made without it would be compared with the wrong ones."""

    def forbidden(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", forbidden)
    with pytest.raises(SessionError, match="CAP_SYS_NICE"):
        run(FakeDriver(), Options(rounds=1, driver_first=True), small("a"))


def test_a_cluster_is_measured_as_one_server_and_its_result_reads_back(tmp_path: Path) -> None:
    replicated = msgspec.structs.replace(WORKLOAD, topic=Topic(partitions=1, replication_factor=3))
    specs = (*small("one"), *small("three", brokers=3, more="--warm-up 0 --nodes 3"))
    result, _ = run(FakeDriver(), ONE, specs, replicated)
    assert list(result.skipped) == ["one"]
    (measured,) = result.measured
    assert measured.server is not None
    assert measured.server.rss_bytes > 6 * 4_000_000  # three nodes, each with a child
    assert len(measured.server_nodes) == 3
    assert measured.server.rss_bytes == sum(node.rss_bytes for node in measured.server_nodes)
    assert measured.server_placement is not None
    save_result(result, tmp_path / "r.json")
    again = specs_of(load_result(tmp_path / "r.json"))
    assert [spec.variant.nodes for spec in again] == [1, 3]
