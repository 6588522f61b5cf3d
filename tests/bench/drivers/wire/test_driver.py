"""The wire driver against servers that behave, stall, refuse and hang up."""

from __future__ import annotations

import os

import pytest

from blumfeld.testing.embedded import EmbeddedBroker
from blumfeld_bench.drivers.connections import may_go_first
from blumfeld_bench.drivers.contract import DriverError, Task
from blumfeld_bench.drivers.driver import make_driver, null_server
from blumfeld_bench.drivers.wire_client import WireClient
from blumfeld_bench.result import Placement
from blumfeld_bench.workload import Consume, Produce, Step
from tests.bench.drivers.scripted_server import ScriptedServer
from tests.bench.drivers.short_runs import Watch, count, percentile_ms, run, workload

TRIES = 5
"""A busy machine may be slow once, and again, but not always."""


def port_of(broker: EmbeddedBroker, partitions: int = 2) -> int:
    with WireClient(broker.host, broker.port) as client:
        client.create_topic("t", partitions)
        client.wait_for_leaders("t")
    return broker.port


def test_a_stall_shows_in_the_tail() -> None:
    """Half of the requests, which are due evenly over 1.2 s, fall into a stall of 0.6 s, and wait 0.3 s on average."""
    step = Step(name="open", produce=Produce(connections=2, rate_per_s=400), warm_up_s=0.1, measure_s=1.2)
    with ScriptedServer(stall_at_s=0.3, stall_s=0.6) as server:
        outcome = run(server.port, step)
    assert outcome.errors == 0
    assert percentile_ms(outcome.produce_ack, 99) > 540
    assert percentile_ms(outcome.produce_ack, 75) > 200
    assert count(outcome.produce_ack) == pytest.approx(480, abs=2)


@pytest.mark.slow
def test_a_closed_loop_hides_the_same_stall() -> None:
    """So the test above can fail: this is what a driver would say that waits before it goes on."""
    step = Step(name="closed", produce=Produce(connections=2), warm_up_s=0.1, measure_s=1.2)
    with ScriptedServer(stall_at_s=0.3, stall_s=0.6) as server:
        outcome = run(server.port, step)
    assert percentile_ms(outcome.produce_ack, 99) < 100
    assert percentile_ms(outcome.produce_ack, 100) > 540


def test_refused_requests_are_counted_and_named() -> None:
    step = Step(name="refused", produce=Produce(rate_per_s=200), warm_up_s=0, measure_s=0.5)
    with ScriptedServer(fail_every=10) as server:
        outcome = run(server.port, step)
    assert outcome.errors == 10
    assert outcome.error == "Produce: NOT_LEADER_OR_FOLLOWER"
    assert count(outcome.produce_ack) == 90


def test_what_is_due_on_a_connection_that_has_ended_is_an_error() -> None:
    """One of two connections goes at the 11th request; what is left of its 50 is lost."""
    step = Step(name="gone", produce=Produce(connections=2, rate_per_s=200), warm_up_s=0, measure_s=0.5)
    with ScriptedServer(nonsense_at=11) as server:
        outcome = run(server.port, step)
    assert outcome.error is not None
    assert "connection ended" in outcome.error
    assert 40 <= outcome.errors < 50
    assert count(outcome.produce_ack) + outcome.errors == 100


def test_a_server_that_went_away_is_told_at_once() -> None:
    step = Step(name="gone", produce=Produce(rate_per_s=200), warm_up_s=0, measure_s=30)
    with (
        ScriptedServer(nonsense_at=11) as server,
        pytest.raises(DriverError, match="no connection is left: a connection ended"),
    ):
        run(server.port, step)


def test_every_leader_gets_what_its_partitions_are_due() -> None:
    """Two servers lead a partition each; a connection is one to both, as a client's is."""
    with ScriptedServer() as other, ScriptedServer(peer=other.port) as server:
        for produce in (Produce(connections=2, rate_per_s=200), Produce(connections=2)):
            step = Step(name="two", produce=produce, consume=Consume(), warm_up_s=0, measure_s=0.3)
            outcome = run(server.port, step)
            assert (outcome.errors, outcome.error) == (0, None)
            assert count(outcome.end_to_end) == count(outcome.produce_ack)
        assert server.produced > 40  # 30 of the open loop
        assert other.produced > 40


def test_two_processes_share_the_load_and_add_up() -> None:
    """Three connections over two processes: together the rate that was asked for, each request once."""
    step = Step(name="shared", produce=Produce(connections=3, rate_per_s=300), warm_up_s=0.2, measure_s=0.6)
    watch = Watch()
    with ScriptedServer() as server:
        outcome = run(server.port, step, processes=2, watch=watch)
        assert server.produced == pytest.approx(240, abs=2)
    assert outcome.errors == 0
    assert count(outcome.produce_ack) == pytest.approx(180, abs=2)
    assert 90 < outcome.records <= 240
    assert watch.marks == ["begins", "ended"]
    assert outcome.seconds == pytest.approx(0.6, abs=0.5)  # not the sum of both


def test_records_are_counted_from_end_to_end_by_every_group() -> None:
    """Three groups of two members see each record of a real broker once."""
    produce = Produce(connections=2, rate_per_s=400, record_bytes_min=64, record_bytes_max=200, keys=10)
    step = Step(
        name="ends", produce=produce, consume=Consume(groups=3, members=2), warm_up_s=0.2, measure_s=0.8
    )
    watch = Watch()
    with EmbeddedBroker() as broker:
        outcome = run(port_of(broker), step, watch=watch)
    assert (outcome.errors, outcome.error) == (0, None)
    acked = count(outcome.produce_ack)
    assert acked == pytest.approx(320, abs=2)
    assert count(outcome.end_to_end) == 3 * acked
    assert outcome.received_bytes == pytest.approx(3 * outcome.bytes, rel=0.05)
    assert percentile_ms(outcome.end_to_end, 50) >= percentile_ms(outcome.produce_ack, 50) * 0.8
    assert watch.seen[0].measuring is False
    assert watch.seen[-1].measuring is True
    assert [point.at_s > 0 for point in outcome.series][-1]


def test_a_batch_waits_for_its_last_record_and_that_counts() -> None:
    """Ten records at 500/s fill a batch in 18 ms: what the first one waited."""
    step = Step(name="batch", produce=Produce(rate_per_s=500, batch_records=10), warm_up_s=0.1, measure_s=0.6)
    with ScriptedServer() as server:
        outcome = run(server.port, step)
    assert percentile_ms(outcome.produce_ack, 1) >= 18
    assert count(outcome.produce_ack) == pytest.approx(30, abs=1)
    assert outcome.records % 10 == 0
    assert outcome.bytes == outcome.records * 100 > 0


@pytest.mark.parametrize("members", [1, 2])
def test_catching_up_ends_when_all_is_read(members: int) -> None:
    """Every preloaded record is received, its value counted to the byte, well before the step's time is over."""
    step = Step(
        name="catch-up", consume=Consume(start="earliest", members=members), warm_up_s=0, measure_s=20
    )
    with EmbeddedBroker() as broker:
        port = port_of(broker)
        driver = make_driver(workload(step))
        driver.preload(Task(host="127.0.0.1", port=port, topic="t", step=step, seed=7), 8_000_000, 1000)
        outcome = run(port, step)
    assert outcome.errors == 0
    assert outcome.records >= 8000
    assert outcome.received_bytes == outcome.records * 1000 == outcome.bytes
    assert outcome.seconds < 10


def test_idle_connections_stay_and_say_nothing() -> None:
    step = Step(
        name="idle", produce=Produce(rate_per_s=100), idle_connections=200, warm_up_s=0, measure_s=0.3
    )
    with ScriptedServer() as server:
        outcome = run(server.port, step)
        assert server.clients_max >= 201
    assert outcome.errors == 0


@pytest.mark.parametrize("goes_first", [False, True])
def test_a_driver_says_how_the_scheduler_treats_it(goes_first: bool) -> None:
    """Read by the process itself: the ordinary policy unless the run asks for another."""
    if goes_first and not may_go_first():
        pytest.skip("SCHED_RR is forbidden here")
    step = Step(name="x", produce=Produce(rate_per_s=100), warm_up_s=0, measure_s=0.2)
    with ScriptedServer() as server:
        placement = run(server.port, step, goes_first=goes_first).usage.placement
    assert placement == Placement(
        policy="SCHED_RR" if goes_first else "SCHED_OTHER", cores=tuple(sorted(os.sched_getaffinity(0)))
    )


@pytest.mark.slow
def test_several_requests_in_flight_and_no_acks() -> None:
    with EmbeddedBroker() as broker:
        port = port_of(broker)
        for produce in (Produce(in_flight=5, acks=-1), Produce(acks=0)):
            step = Step(name="closed", produce=produce, warm_up_s=0, measure_s=0.3)
            outcome = run(port, step)
            assert (outcome.errors, outcome.error) == (0, None)
            assert outcome.records > 100


def test_a_topic_that_is_not_there_is_told() -> None:
    step = Step(name="missing", produce=Produce(), warm_up_s=0, measure_s=0.1)
    with EmbeddedBroker() as broker:
        with (
            WireClient(broker.host, broker.port) as client,
            pytest.raises(DriverError, match=r"nowhere has no leaders yet.*UNKNOWN_TOPIC_OR_PARTITION"),
        ):
            client.wait_for_leaders("nowhere", 0.2)
        with pytest.raises(DriverError, match="nobody"):
            run(broker.port, step, topic="nobody")


def test_the_ceiling_is_above_what_a_step_asks_for() -> None:
    """Each shape of a step has one: produce, produce and consume, consume."""
    produce = Produce(connections=4, rate_per_s=1000, in_flight=5)
    shapes = (
        Step(name="ends", produce=produce, consume=Consume(), measure_s=0.1),
        Step(name="reads", consume=Consume(start="earliest"), measure_s=0.1),
    )
    for step in shapes:
        driver = make_driver(workload(step))
        ceilings = (driver.ceiling(step, 7) for _ in range(TRIES))
        best = next((ceiling for ceiling in ceilings if ceiling.records_per_s > 2000), None)
        assert best is not None
        assert best.step == step.name


def test_end_to_end_needs_room_for_the_time() -> None:
    step = Step(name="tiny", produce=Produce(record_bytes_min=7), consume=Consume(), measure_s=0.1)
    with null_server("t", 1, 0) as port, pytest.raises(DriverError, match="8 bytes"):
        run(port, step)
