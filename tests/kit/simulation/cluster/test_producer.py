"""The simulated producer: which refusals of a batch it accepts, and which it reports."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.init_producer_id import InitProducerIdResponse
from blumfeld.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from blumfeld_kit.simulation.clients.oracle import ViolationError
from blumfeld_kit.simulation.cluster.ledger import ClusterLedger
from blumfeld_kit.simulation.cluster.producer import ClusterProducer

WORK = TopicPartition("work", 0)
OK = ErrorCode.NONE
NOT_YET = ErrorCode.NOT_LEADER_OR_FOLLOWER
REFUSED = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class FewRecords:
    """Stands for the seed's random numbers: a record a batch."""

    def randrange(self, _: int) -> int:
        return 0

    def randbytes(self, count: int) -> bytes:
        return bytes(count)


class ScriptedLeader:
    """A connection that gives its answers in order."""

    def __init__(self, codes: Sequence[ErrorCode]) -> None:
        self._codes = list(codes)
        self._end = 0

    async def ask(self, *_: Any) -> InitProducerIdResponse:
        return InitProducerIdResponse(producer_id=7, producer_epoch=0)

    def send(self, *_: Any) -> ErrorCode:
        return self._codes.pop(0)

    async def wait(self, code: ErrorCode) -> ProduceResponse:
        offset = -1 if code else self._end
        self._end += not code
        partition = PartitionProduceResponse(index=0, error_code=code, base_offset=offset)
        return ProduceResponse(responses=[TopicProduceResponse(name="work", partition_responses=[partition])])


def delivered(*bursts: tuple[int, Sequence[ErrorCode]]) -> ClusterLedger:
    """Deliver bursts of so many batches. The leader gives the answers, one a batch and try."""
    ledger = ClusterLedger()
    ledger.add(WORK)
    leader = ScriptedLeader([code for _, codes in bursts for code in codes])

    def giving(value: Any) -> Callable[..., Awaitable[Any]]:
        async def give(*_: Any) -> Any:
            return value

        return give

    async def run() -> None:
        routes: Any = SimpleNamespace(
            name="producer",
            random=FewRecords(),
            network=SimpleNamespace(loop=SimpleNamespace(time=lambda: 1.0)),
            leader=giving(leader),
            any_broker=giving(leader),
            lost=giving(None),
        )
        producer = ClusterProducer(routes, ledger, [WORK], 0.0)
        for batches, _ in bursts:
            await producer.deliver(WORK, batches)

    asyncio.run(run())
    return ledger


def claimed(ledger: ClusterLedger) -> int:
    return len(ledger.partitions[WORK].claimed)


def test_batches_in_front_of_the_first_that_was_taken_are_refused_for_ever() -> None:
    # The leader is ready between the second and the third batch, so it begins the producer with the third.
    ledger = delivered((3, [NOT_YET, NOT_YET, OK, REFUSED, REFUSED]))
    assert claimed(ledger) == 0
    assert ledger.counts["acked"] == 1
    assert ledger.counts["ids given up"] == 1


def test_a_refused_repetition_behind_an_acknowledged_batch_must_be_in_the_log() -> None:
    ledger = delivered((3, [OK, NOT_YET, NOT_YET, REFUSED, REFUSED]))
    assert claimed(ledger) == 1


def test_a_refused_repetition_of_a_later_burst_must_be_in_the_log() -> None:
    ledger = delivered((1, [OK]), (1, [NOT_YET, REFUSED]))
    assert claimed(ledger) == 1


def test_a_leader_that_refuses_a_new_batch_behind_an_acknowledged_one_has_forgotten_the_producer() -> None:
    with pytest.raises(ViolationError, match="forgot a producer"):
        delivered((1, [OK]), (1, [REFUSED]))
