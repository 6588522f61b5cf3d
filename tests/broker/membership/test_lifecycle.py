"""Registration, heartbeats, leaving; and producer ids, which need a broker epoch (KIP-631)."""

from __future__ import annotations

import pytest

from blumfeld.broker.membership.lifecycle import LISTENS_MS, WARN_MS
from blumfeld.spi.cluster import BrokerImage, Endpoint
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from blumfeld.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from blumfeld.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from blumfeld.wire.messages.init_producer_id import InitProducerIdRequest
from blumfeld.wire.schema import Message
from tests.broker.harness import BrokerHarness, refusal


def test_the_registration_says_who_and_where() -> None:
    broker = BrokerHarness()
    (sent,) = broker.metadata.sent(BrokerRegistrationRequest)
    assert [(listener.name, listener.host, listener.port) for listener in sent.listeners] == [
        ("PLAINTEXT", "127.0.0.1", 9092)
    ]
    assert [(f.name, f.min_supported_version, f.max_supported_version) for f in sent.features] == [
        ("eligible.leader.replicas.version", 0, 1),
        ("kraft.version", 0, 1),
        ("metadata.version", 30, 30),
    ]
    assert (sent.log_dirs, sent.previous_broker_epoch, sent.rack) == ([b"d" * 16], -1, None)
    assert broker.broker.membership.broker_epoch == 7


def test_nothing_is_hosted_before_the_image_shows_this_registration() -> None:
    """Until then the image places replicas for an earlier process of this node, and leads them in its old epochs."""
    broker = BrokerHarness(start=False)
    broker.metadata.create_topic("t")

    def register(_: Message) -> Message:
        earlier = BrokerImage(broker_id=1, epoch=6, incarnation_id=bytes(16), endpoints=())
        broker.metadata.image.brokers[1] = earlier
        return BrokerRegistrationResponse(broker_epoch=7)

    broker.metadata.answers[BrokerRegistrationRequest] = register
    starting = broker.runtime.loop.create_task(broker.broker.start())
    broker.runtime.advance(WARN_MS + 1_000)
    assert not starting.done()
    assert list(broker.broker.partitions) == []
    assert ("warning", "the image does not show this registration yet") in [e[:2] for e in broker.log.events]
    beats = broker.metadata.sent(BrokerHeartbeatRequest)
    assert beats
    assert all(beat.want_fence for beat in beats)
    registered = BrokerImage(broker_id=1, epoch=7, incarnation_id=b"i" * 16, endpoints=(), fenced=True)
    broker.metadata.image.brokers[1] = registered
    broker.runtime.advance(1_000)
    assert starting.done()
    assert [partition.leader_epoch for partition in broker.broker.partitions] == [0]
    assert not broker.metadata.sent(BrokerHeartbeatRequest)[-1].want_fence


def test_heartbeats_come_every_two_seconds() -> None:
    broker = BrokerHarness()
    before = len(broker.metadata.sent(BrokerHeartbeatRequest))
    broker.runtime.advance(10_100)
    beats = broker.metadata.sent(BrokerHeartbeatRequest)
    assert len(beats) - before == 5
    last = beats[-1]
    assert (last.broker_id, last.broker_epoch, last.want_fence, last.want_shut_down) == (1, 7, False, False)
    assert last.current_metadata_offset >= 7


def test_a_start_waits_until_it_is_unfenced() -> None:
    broker = BrokerHarness(start=False)
    fenced = iter([BrokerHeartbeatResponse(is_fenced=True)] * 3)
    broker.metadata.answers[BrokerHeartbeatRequest] = lambda _: next(fenced, None)
    broker.start()
    assert len(broker.metadata.sent(BrokerHeartbeatRequest)) == 4
    assert not broker.broker.lifecycle.fenced


def test_the_controller_is_told_of_open_listeners_at_once() -> None:
    """Otherwise it could not tell a port that is not open yet from a process that died (ADR 0033)."""
    broker = BrokerHarness(single_node=False)
    before = len(broker.metadata.sent(BrokerHeartbeatRequest))
    telling = broker.runtime.loop.create_task(broker.broker.listens())
    broker.runtime.run_turn()
    beats = broker.metadata.sent(BrokerHeartbeatRequest)
    assert len(beats) == before + 1
    assert not beats[-1].want_fence
    broker.runtime.run_turn()
    assert telling.done()
    broker.runtime.advance(4_000)
    assert len(broker.metadata.sent(BrokerHeartbeatRequest)) == before + 3, "the interval begins anew"


def test_a_controller_that_does_not_answer_holds_up_a_start_for_a_moment() -> None:
    broker = BrokerHarness(single_node=False)
    broker.metadata.held = []
    telling = broker.runtime.loop.create_task(broker.broker.listens())
    broker.runtime.advance(LISTENS_MS - 1)
    assert not telling.done()
    broker.runtime.advance(2)
    assert telling.done()


def test_a_start_gives_up_when_nobody_unfences_it() -> None:
    broker = BrokerHarness(start=False)
    broker.metadata.answers[BrokerHeartbeatRequest] = lambda _: BrokerHeartbeatResponse(is_fenced=True)
    with pytest.raises(TimeoutError, match="unfence"):
        broker.start()


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (ErrorCode.INVALID_REGISTRATION, False),
        (ErrorCode.DUPLICATE_BROKER_REGISTRATION, True),
        (9_999, False),
    ],
)
def test_a_refused_registration_fails_the_start(error: int, again: bool) -> None:
    """At once; but another process with this id is waited for until the start's time is over. A number that is unknown
    here, a newer controller's, is an unknown error."""
    broker = BrokerHarness(start=False)
    refused = BrokerRegistrationResponse(error_code=error)
    broker.metadata.answers[BrokerRegistrationRequest] = lambda _: refused
    with refusal(ErrorCode.UNKNOWN_SERVER_ERROR if error == 9_999 else ErrorCode(error)):
        broker.start()
    assert (len(broker.metadata.sent(BrokerRegistrationRequest)) > 1) is again


def test_a_start_that_gives_up_on_another_process_with_its_id_says_where_that_is() -> None:
    broker = BrokerHarness(start=False)
    there = (Endpoint("PLAINTEXT", "elsewhere", 9093),)
    broker.metadata.image.brokers[1] = BrokerImage(
        broker_id=1, epoch=6, incarnation_id=bytes(16), endpoints=there
    )
    refused = BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    broker.metadata.answers[BrokerRegistrationRequest] = lambda _: refused
    with pytest.raises(
        BrokerError, match=r"another process is node 1, at elsewhere:9093, .* another id \(node.id\)"
    ):
        broker.start()


def test_a_registration_succeeds_once_the_last_process_is_known_to_be_gone() -> None:
    """A node that is killed and starts again finds its last session alive."""
    broker = BrokerHarness(start=False)
    refused = iter([BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)] * 3)
    broker.metadata.answers[BrokerRegistrationRequest] = lambda _: next(refused, None)
    broker.start()
    assert len(broker.metadata.sent(BrokerRegistrationRequest)) == 4


def test_a_controller_that_is_not_there_yet_is_asked_again() -> None:
    broker = BrokerHarness(start=False)
    broker.metadata.refuse = ErrorCode.NOT_CONTROLLER
    broker.start()
    assert len(broker.metadata.sent(BrokerRegistrationRequest)) == 2


def test_an_error_of_a_newer_controller_ends_no_series_of_heartbeats() -> None:
    """Its number is unknown here."""
    broker = BrokerHarness()
    broker.metadata.answers[BrokerHeartbeatRequest] = lambda _: BrokerHeartbeatResponse(error_code=9_999)
    before = len(broker.metadata.sent(BrokerHeartbeatRequest))
    broker.runtime.advance(10_100)
    assert len(broker.metadata.sent(BrokerHeartbeatRequest)) - before == 5
    refused = [event[2] for event in broker.log.events if event[1] == "heartbeat refused"]
    assert {values["error"] for values in refused} == {"UNKNOWN_SERVER_ERROR"}


def test_a_lost_heartbeat_is_followed_by_the_next() -> None:
    broker = BrokerHarness()
    broker.metadata.refuse = ErrorCode.REQUEST_TIMED_OUT
    broker.runtime.advance(4_100)
    assert ("warning", "heartbeat not answered") in [event[:2] for event in broker.log.events]
    assert len(broker.metadata.sent(BrokerHeartbeatRequest)) >= 3


def test_a_single_broker_is_fenced_with_its_last_heartbeat() -> None:
    """So that whoever starts on its directory next need not wait for a session to end."""
    broker = BrokerHarness()
    broker.stop()
    beats = broker.metadata.sent(BrokerHeartbeatRequest)
    assert [(b.want_fence, b.want_shut_down) for b in beats] == [(False, False), (True, True)]
    broker.runtime.advance(10_000)
    assert len(broker.metadata.sent(BrokerHeartbeatRequest)) == len(beats)


def second_broker(broker: BrokerHarness) -> None:
    own = broker.metadata.image.brokers[1]
    broker.metadata.image.brokers[2] = BrokerImage(
        broker_id=2, epoch=8, incarnation_id=bytes(16), endpoints=own.endpoints
    )


def test_a_broker_among_others_leaves_when_the_controller_says_so() -> None:
    broker = BrokerHarness()
    second_broker(broker)
    may_leave = iter([False, False, True])
    broker.metadata.answers[BrokerHeartbeatRequest] = lambda beat: (
        BrokerHeartbeatResponse(is_fenced=False, should_shut_down=next(may_leave))
        if beat.want_shut_down
        else None
    )
    broker.stop()
    assert sum(beat.want_shut_down for beat in broker.metadata.sent(BrokerHeartbeatRequest)) == 3


def test_it_leaves_anyway_when_nobody_answers() -> None:
    broker = BrokerHarness()
    second_broker(broker)
    before = broker.runtime.monotonic_ms()
    broker.stop()
    assert broker.runtime.monotonic_ms() - before <= 9_000


@pytest.mark.parametrize("controlled", [True, False])
@pytest.mark.parametrize("error", [None, BrokerError(ErrorCode.REQUEST_TIMED_OUT)])
def test_a_heartbeat_that_is_answered_after_the_stop_is_the_last(
    controlled: bool, error: BrokerError | None
) -> None:
    broker = BrokerHarness({"controlled.shutdown.enable": controlled})
    second_broker(broker)
    held = broker.metadata.held = []
    broker.runtime.advance(2_100)
    assert len(held) == 1
    broker.stop()
    sent = len(broker.metadata.sent(BrokerHeartbeatRequest))
    for beat in held:
        if error is not None:
            beat.fail(error)
        else:
            beat.complete(BrokerHeartbeatResponse(is_fenced=False))
    logged = len(broker.log.events)
    broker.runtime.advance(30_000)
    assert len(broker.metadata.sent(BrokerHeartbeatRequest)) == sent
    assert len(broker.log.events) == logged


def test_one_heartbeat_at_a_time_is_under_way_while_it_leaves() -> None:
    """A heartbeat that is under way when the stop begins must not begin a series of its own."""
    broker = BrokerHarness()
    second_broker(broker)
    held = broker.metadata.held = []
    broker.runtime.advance(2_100)
    stopping = broker.runtime.loop.create_task(broker.broker.stop())
    broker.runtime.run_turn()
    for _ in range(5):
        unanswered = [beat for beat in held if not beat.done]
        assert len(unanswered) <= 2
        for beat in unanswered:
            beat.complete(BrokerHeartbeatResponse(is_fenced=False))
        broker.runtime.advance(250)
    (last,) = [beat for beat in held if not beat.done]
    last.complete(BrokerHeartbeatResponse(is_fenced=False, should_shut_down=True))
    broker.runtime.run_turn()
    assert stopping.done()


# Producer ids


def test_producer_ids_come_from_blocks() -> None:
    broker = BrokerHarness()
    request = InitProducerIdRequest(transactional_id=None)
    for version in range(6):
        answer = broker.ask(request, version)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 1000 + version, 0)
    assert len(broker.metadata.sent(AllocateProducerIdsRequest)) == 3


def test_who_waits_for_a_block_gets_ids_in_order() -> None:
    broker = BrokerHarness()
    pending = broker.metadata.held = []
    request = InitProducerIdRequest(transactional_id=None)
    waiting = [broker.send(request, 4) for _ in range(3)]
    pending[0].complete(AllocateProducerIdsResponse(producer_id_start=5, producer_id_len=2))
    pending[1].complete(AllocateProducerIdsResponse(producer_id_start=50, producer_id_len=2))
    assert [broker.response(exchange, request, 4).producer_id for exchange in waiting] == [5, 6, 50]


def test_without_a_block_the_client_tries_again() -> None:
    broker = BrokerHarness()
    broker.metadata.refuse = ErrorCode.NOT_CONTROLLER
    request = InitProducerIdRequest(transactional_id=None)
    assert broker.ask(request, 4).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert broker.ask(request, 4).error_code == 0


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (InitProducerIdRequest(transactional_id=""), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest(transactional_id="tx"), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (InitProducerIdRequest(transactional_id=None, producer_id=5), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest(transactional_id=None, producer_epoch=5), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_gets_no_producer_id(request_: InitProducerIdRequest, code: ErrorCode) -> None:
    answer = BrokerHarness().ask(request_, 4)
    assert (answer.error_code, answer.producer_id) == (code, -1)
