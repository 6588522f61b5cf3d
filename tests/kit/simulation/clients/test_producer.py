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
from blumfeld_kit.simulation.clients.oracle import ALWAYS_S, NEVER_S, Oracle, ViolationError
from blumfeld_kit.simulation.clients.producer import Producer

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


def delivered(*bursts: tuple[int, Sequence[ErrorCode]], restarted_s: float = ALWAYS_S) -> Oracle:
    """Deliver bursts of so many batches. The leader gives the answers, one a batch and try."""
    oracle = Oracle()
    oracle.add(WORK)
    oracle.restarted_s = restarted_s
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
        producer = Producer(routes, oracle, [WORK], 0.0)
        for batches, _ in bursts:
            await producer.deliver(*[WORK] * batches)

    asyncio.run(run())
    return oracle


def claimed(oracle: Oracle) -> int:
    return len(oracle.partitions[WORK].claimed)


def test_batches_in_front_of_the_first_that_was_taken_are_refused_for_ever() -> None:
    # The leader is ready between the second and the third batch, so it begins the producer with the third.
    oracle = delivered((3, [NOT_YET, NOT_YET, OK, REFUSED, REFUSED]))
    assert claimed(oracle) == 0
    assert oracle.counts["acked"] == 1
    assert oracle.counts["ids given up"] == 1


def test_a_refused_repetition_behind_an_acknowledged_batch_must_be_in_the_log() -> None:
    oracle = delivered((3, [OK, NOT_YET, NOT_YET, REFUSED, REFUSED]))
    assert claimed(oracle) == 1


def test_a_broker_that_was_not_restarted_knows_its_producers() -> None:
    with pytest.raises(ViolationError, match="forgot a producer"):
        delivered((3, [OK, NOT_YET, NOT_YET, REFUSED, REFUSED]), restarted_s=NEVER_S)


def test_a_snapshot_of_producers_has_the_last_batch_so_its_repetition_is_not_refused() -> None:
    with pytest.raises(ViolationError, match="forgot a producer"):
        delivered((1, [OK]), (1, [NOT_YET, REFUSED]))


def test_a_first_batch_is_refused_only_if_a_later_one_may_have_been_taken() -> None:
    """The answer to the later one may have been lost."""
    assert claimed(delivered((2, [NOT_YET, NOT_YET, REFUSED, REFUSED]))) == 0
    with pytest.raises(ViolationError, match="forgot a producer"):
        delivered((1, [NOT_YET, REFUSED]))


def test_a_leader_that_refuses_a_new_batch_behind_an_acknowledged_one_has_forgotten_the_producer() -> None:
    with pytest.raises(ViolationError, match="forgot a producer"):
        delivered((1, [OK]), (1, [REFUSED]))
