"""Forwarded commands by themselves. ``test_three_nodes`` has them in a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import OnBehalf
from blumfeld.spi.context import Principal
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from blumfeld.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from blumfeld.wire.schema import Message
from blumfeld_consensus_kraft.forwarder import RETRY_MS, Forwarder, OwnController
from blumfeld_kit.fakes import FakeRuntime

TIMEOUT_MS = 5_000


def described(high_watermark: int) -> DescribeQuorumResponse:
    partition = ResponsePartitionData(high_watermark=high_watermark)
    return DescribeQuorumResponse(topics=[ResponseTopicData(partitions=[partition])])


class Leader:
    """Keeps what it is asked, until the test answers."""

    def __init__(self) -> None:
        self.runtime = FakeRuntime()
        self.asked: list[tuple[Message, Completion[Message]]] = []
        self.shown: list[tuple[int, Callable[[], None]]] = []
        self.is_known = True
        self.own: OwnController | None = None
        self.forwarder = Forwarder(
            self.runtime,
            lambda: self.own or (cast("Any", self) if self.is_known else None),
            lambda offset, then: self.shown.append((offset, then)),
        )

    def send(self, message: Message, _timeout_ms: float) -> Completion[Message]:
        answer: Completion[Message] = Completion()
        self.asked.append((message, answer))
        return answer

    def submit(self, *, wait_image: bool = True, on_behalf: OnBehalf | None = None) -> Completion[Message]:
        return self.forwarder.submit(
            AllocateProducerIdsRequest(), TIMEOUT_MS, on_behalf, wait_image=wait_image
        )

    def answer(self, kind: type[Message], with_: Message | Exception) -> None:
        """Answer the oldest open request of this kind."""
        at = next(n for n, (message, _) in enumerate(self.asked) if isinstance(message, kind))
        _, answer = self.asked.pop(at)
        if isinstance(with_, Exception):
            answer.fail(with_)
        else:
            answer.complete(with_)


@pytest.fixture
def leader() -> Leader:
    return Leader()


def test_an_answer_waits_for_the_image(leader: Leader) -> None:
    done = leader.submit()
    leader.answer(AllocateProducerIdsRequest, AllocateProducerIdsResponse())
    leader.answer(DescribeQuorumRequest, described(17))
    assert not done.done
    ((offset, then),) = leader.shown
    assert offset == 17
    then()
    assert isinstance(done.result(), AllocateProducerIdsResponse)


@pytest.mark.parametrize("lost", [described(-1), ConnectionError("the leader is gone")])
def test_a_leader_that_is_lost_behind_its_answer_shortens_nothing(
    leader: Leader, lost: Message | Exception
) -> None:
    """The command is not sent again; the next leader says what is committed."""
    done = leader.submit()
    leader.answer(AllocateProducerIdsRequest, AllocateProducerIdsResponse())
    leader.is_known = False
    leader.answer(DescribeQuorumRequest, lost)
    leader.runtime.advance(RETRY_MS * 3)
    assert not done.done
    assert leader.asked == []
    leader.is_known = True
    leader.runtime.advance(RETRY_MS + 1)
    assert [type(message) for message, _ in leader.asked] == [DescribeQuorumRequest]
    leader.answer(DescribeQuorumRequest, described(18))
    ((offset, then),) = leader.shown
    assert offset == 18
    then()
    assert isinstance(done.result(), AllocateProducerIdsResponse)


def test_a_command_is_sent_again_until_its_time_is_over(leader: Leader) -> None:
    done = leader.submit(wait_image=False)
    for _ in range(3):
        leader.answer(
            AllocateProducerIdsRequest, AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER)
        )
        leader.runtime.advance(RETRY_MS + 1)
    leader.answer(AllocateProducerIdsRequest, ConnectionError("gone"))
    leader.runtime.advance(TIMEOUT_MS)
    assert isinstance(done.error, BrokerError)
    assert done.error.code == ErrorCode.REQUEST_TIMED_OUT


def test_another_leader_is_asked_at_once(leader: Leader) -> None:
    leader.submit(wait_image=False)
    leader.answer(AllocateProducerIdsRequest, BrokerError(ErrorCode.NOT_CONTROLLER))
    assert leader.asked == []
    leader.forwarder.leader_changed()
    assert len(leader.asked) == 1


def test_the_next_leader_is_asked_while_the_last_one_is_silent(leader: Leader) -> None:
    done = leader.submit(wait_image=False)
    leader.forwarder.leader_changed()
    (_, silent), (_, answering) = leader.asked
    answering.complete(AllocateProducerIdsResponse())
    assert isinstance(done.result(), AllocateProducerIdsResponse)
    silent.fail(TimeoutError())


def test_the_end_of_an_earlier_attempt_asks_nobody(leader: Leader) -> None:
    leader.submit(wait_image=False)
    leader.forwarder.leader_changed()
    leader.asked[0][1].fail(ConnectionError("the leader is gone"))
    leader.runtime.advance(RETRY_MS * 3)
    assert len(leader.asked) == 2


def test_a_late_answer_of_the_last_leader_counts(leader: Leader) -> None:
    done = leader.submit(wait_image=False)
    leader.forwarder.leader_changed()
    leader.asked[0][1].complete(AllocateProducerIdsResponse(producer_id_start=7))
    answer = done.result()
    assert isinstance(answer, AllocateProducerIdsResponse)
    assert answer.producer_id_start == 7


def test_a_leader_that_falls_silent_behind_its_answer_is_not_waited_for(leader: Leader) -> None:
    done = leader.submit()
    leader.answer(AllocateProducerIdsRequest, AllocateProducerIdsResponse())
    leader.forwarder.leader_changed()
    assert [type(message) for message, _ in leader.asked] == [DescribeQuorumRequest, DescribeQuorumRequest]
    leader.asked[1][1].complete(described(18))
    ((offset, then),) = leader.shown
    assert offset == 18
    then()
    assert done.done


@pytest.mark.parametrize("wait_image", [True, False])
def test_this_node_decides_when_it_is_the_next_leader(leader: Leader, wait_image: bool) -> None:
    decided: list[tuple[Message, OnBehalf | None, bool]] = []

    def submit(
        command: Message, timeout_ms: float, *, on_behalf: OnBehalf | None = None, wait_image: bool
    ) -> Completion[Message]:
        decided.append((command, on_behalf, wait_image))
        return Completion.of(AllocateProducerIdsResponse())

    client = OnBehalf(Principal("ada"), "10.0.0.9", "client")
    done = leader.submit(wait_image=wait_image, on_behalf=client)
    leader.own = OwnController(submit)
    leader.forwarder.leader_changed()
    assert isinstance(done.result(), AllocateProducerIdsResponse)
    ((command, on_behalf, waits),) = decided
    assert on_behalf is client, "a client's command is decided as the client's"
    assert isinstance(command, AllocateProducerIdsRequest)
    assert waits is wait_image
