"""The librdkafka driver against a real broker."""

from __future__ import annotations

import pytest

from blumfeld.testing.embedded import EmbeddedBroker
from blumfeld_bench.drivers.contract import DriverError, Task
from blumfeld_bench.drivers.driver import make_driver
from blumfeld_bench.workload import Consume, Produce, Step
from tests.bench.drivers.scripted_server import ScriptedServer
from tests.bench.drivers.short_runs import count, percentile_ms, run, workload
from tests.bench.drivers.wire.test_driver import TRIES, port_of


def test_a_group_receives_what_is_produced_at_a_rate() -> None:
    produce = Produce(connections=2, rate_per_s=400, record_bytes_min=64, record_bytes_max=200, keys=10)
    step = Step(name="ends", produce=produce, consume=Consume(members=2), warm_up_s=0.2, measure_s=0.4)
    with EmbeddedBroker() as broker:
        outcome = run(port_of(broker), step, driver="librdkafka")
    assert (outcome.errors, outcome.error) == (0, None)
    assert count(outcome.produce_ack) == pytest.approx(160, abs=2)
    assert count(outcome.end_to_end) == count(outcome.produce_ack)


def test_a_stall_shows_in_its_tail_too() -> None:
    step = Step(name="open", produce=Produce(rate_per_s=200), warm_up_s=0.1, measure_s=1.0)
    with ScriptedServer(stall_at_s=0.3, stall_s=0.5) as server:
        outcome = run(server.port, step, driver="librdkafka")
    assert (outcome.errors, outcome.error) == (0, None)
    assert percentile_ms(outcome.produce_ack, 99) > 440


@pytest.mark.slow
def test_catching_up_ends_when_all_is_read() -> None:
    step = Step(name="catch-up", consume=Consume(start="earliest", groups=2), warm_up_s=0, measure_s=20)
    with EmbeddedBroker() as broker:
        port = port_of(broker)
        driver = make_driver(workload(step, "librdkafka"))
        driver.preload(Task(host="127.0.0.1", port=port, topic="t", step=step, seed=7), 2_000_000, 1000)
        outcome = run(port, step, driver="librdkafka")
    assert outcome.errors == 0
    assert outcome.received_bytes == outcome.records * 1000
    assert 4_000_000 <= outcome.received_bytes < 5_100_000
    assert outcome.seconds < 10


def test_its_ceiling_is_that_of_writing() -> None:
    """Groups can't read from a server that keeps nothing."""
    step = Step(name="ends", produce=Produce(rate_per_s=10), consume=Consume(), measure_s=0.1)
    driver = make_driver(workload(step, "librdkafka"))
    assert any(driver.ceiling(step, 7).records_per_s > 100 for _ in range(TRIES))
    reading = Step(name="reads", consume=Consume(), measure_s=0.3)
    with pytest.raises(DriverError, match="reads"):
        driver.ceiling(reading, 7)
