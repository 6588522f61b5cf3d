"""The driver of transactional producers against a broker with the plug-in, and against answers that are wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from blumfeld.client.security.command_config import PLAINTEXT
from blumfeld.testing.embedded import EmbeddedBroker
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.codec import encode
from blumfeld.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from blumfeld.wire.messages.end_txn import EndTxnResponse
from blumfeld.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from blumfeld_bench.drivers.contract import DriverError, Outcome, Task
from blumfeld_bench.drivers.driver import make_driver
from blumfeld_bench.drivers.meter import Meter
from blumfeld_bench.drivers.transactions import process
from blumfeld_bench.drivers.transactions.frames import AddPartitionsFrame, EndFrame, ProduceFrame
from blumfeld_bench.drivers.transactions.requests import committed_records
from blumfeld_bench.drivers.wire_client import LATEST, WireClient
from blumfeld_bench.workload import (
    Produce,
    Step,
    Topic,
    Transaction,
    Workload,
    WorkloadError,
    parse_workload,
)
from tests.bench.drivers.short_runs import Watch, count

HEADER = bytes(5)
PARTITIONS = 6


def step_of(version: int, producers: int = 2, partitions: int = 3) -> Step:
    transaction = Transaction(partitions=partitions, version=2 if version else 0)
    produce = Produce(connections=producers, batch_records=4, acks=-1, transaction=transaction)
    return Step(name=f"v{version}", produce=produce, warm_up_s=0, measure_s=0.4)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with EmbeddedBroker() as broker:
        broker_port = broker.port
        with WireClient("127.0.0.1", broker_port) as client:
            client.create_topic("t", PARTITIONS)
            client.wait_for_leaders("t")
        yield broker_port


def run(port: int, step: Step) -> Outcome:
    workload = Workload(
        name="test", description="", driver="transactions", topic=Topic(partitions=PARTITIONS), steps=(step,)
    )
    driver = make_driver(workload)
    return driver.run(
        Task(host="127.0.0.1", port=port, topic="t", step=step, seed=7), Watch(), lambda progress: None
    )


@pytest.mark.parametrize("version", [0, 2])
def test_transactions_are_committed_and_counted(port: int, version: int) -> None:
    """Each is one request with one latency, and read_committed sees all of their records, from the step's begin on."""
    with WireClient("127.0.0.1", port) as client:
        leaders = client.leaders("t")
        before = client.offsets("t", leaders, LATEST)
    outcome = run(port, step_of(version))
    assert outcome.error is None
    assert outcome.requests > 1
    assert outcome.records == outcome.requests * 12
    assert 0 <= count(outcome.produce_ack) - outcome.requests <= 2  # those that the drain waited for
    seen = committed_records("t", [(leader.host, leader.port) for leader in leaders], before)
    assert seen == count(outcome.produce_ack) * 12


def test_a_step_whose_records_are_not_all_there_has_an_error(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the test above can fail."""
    monkeypatch.setattr(process, "committed_records", lambda *arguments: 11)
    load = process.TransactionsLoad.__new__(process.TransactionsLoad)
    load._meter = Meter()
    load._producers = []
    load._spec = _Spec()  # type: ignore[assignment]
    load._from_offsets = []
    load._security = PLAINTEXT
    load._check_committed()
    assert load._meter.error == "read_committed sees 11 records, and 0 were committed"


class _Spec:
    topic = "t"
    leaders = ()


def test_a_broker_without_the_plug_in_is_told_so() -> None:
    with EmbeddedBroker(manifest={"transactions": {"plugin": "none"}}) as broker:
        broker_port = broker.port
        with pytest.raises(DriverError, match="API key 26; the driver needs 5"):
            run(broker_port, step_of(2))


def test_a_batch_is_sealed_for_its_producer() -> None:
    record = [Record(key=None, value=b"x", timestamp=1)]
    batches = {index: bytes(build_batch(record, transactional=True)) for index in (4, 5)}
    frame = ProduceFrame("id", "t", batches, 2)
    frame.seal(9, 3, {5: 8})
    for (index, view), sequence in zip(frame._batches, (0, 8), strict=True):
        batch = RecordBatch(view)
        batch.verify_crc()
        assert index in (4, 5)
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 3, sequence)


@pytest.mark.parametrize("bad", [None, 0, 1, 99])
def test_error_codes_of_produce_are_found(bad: int | None) -> None:
    """In the first, another and the last partition; an answer without one has none."""
    batch = bytes(build_batch([Record(key=None, value=b"x")], transactional=True))
    frame = ProduceFrame("id", "topic", dict.fromkeys(range(100), batch), 2)
    parts = [PartitionProduceResponse(index=at, error_code=51 if at == bad else 0) for at in range(100)]
    answer = ProduceResponse(responses=[TopicProduceResponse(name="topic", partition_responses=parts)])
    codes = frame.codes(HEADER + encode(answer, 12))
    assert [at for at, code in enumerate(codes) if code] == ([] if bad is None else [bad])
    assert frame._codes.none_in(HEADER + encode(answer, 12)) == (bad is None)


@pytest.mark.parametrize("bad", [None, 0, 2])
def test_error_codes_of_add_partitions_are_found(bad: int | None) -> None:
    frame = AddPartitionsFrame("id", (1, 0), "topic", range(3))
    parts = [
        AddPartitionsToTxnPartitionResult(partition_index=at, partition_error_code=51 if at == bad else 0)
        for at in range(3)
    ]
    answer = AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(name="topic", results_by_partition=parts)
        ]
    )
    codes = frame.codes(HEADER + encode(answer, 3))
    assert [at for at, code in enumerate(codes) if code] == ([] if bad is None else [bad])
    assert frame._codes.none_in(HEADER + encode(answer, 3)) == (bad is None)


def test_the_next_epoch_comes_with_the_commit() -> None:
    answer = EndTxnResponse(producer_id=7, producer_epoch=3)
    assert EndFrame("id", 2).outcome(HEADER + encode(answer, 5)) == (0, (7, 3))
    assert EndFrame("id", 0).outcome(HEADER + encode(answer, 4)) == (0, None)
    assert EndFrame("id", 2).outcome(HEADER + encode(EndTxnResponse(error_code=51), 5)) == (51, None)


TEXT = """
name = "w"
description = "d"
driver = "{driver}"
[topic]
partitions = 4
[[steps]]
name = "s"
produce = {{ {produce} }}
"""


@pytest.mark.parametrize(
    ("driver", "produce", "said"),
    [
        ("wire", "acks = -1, transaction = {}", "transactions need driver"),
        ("transactions", "acks = -1", "needs produce.transaction"),
        ("transactions", "acks = 1, transaction = {}", "acks = -1"),
        ("transactions", "acks = -1, rate_per_s = 5, transaction = {}", "no rate"),
        ("transactions", "acks = -1, transaction = { partitions = 5 }", "of 5 partitions; at most 4"),
    ],
)
def test_a_workload_that_can_not_be_run_is_refused(driver: str, produce: str, said: str) -> None:
    with pytest.raises(WorkloadError, match=said):
        parse_workload(TEXT.format(driver=driver, produce=produce), "w.toml")
