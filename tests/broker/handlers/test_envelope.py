"""Envelope: served by the controller, with the principal of the inner request (KIP-590)."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import pytest
from msgspec.structs import replace

from blumfeld.client.envelope import enveloped, inner_answer
from blumfeld.spi.consensus import Controller, OnBehalf
from blumfeld.spi.context import Principal
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from blumfeld.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from blumfeld.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from blumfeld.wire.schema import Message
from tests.broker.harness import CONTROLLER_LISTENER, BrokerHarness, Permissions

ALICE = OnBehalf(Principal("alice"), "192.0.2.7", "app")


class Rules(Permissions):
    """``Authorizer``: alice may create topics, the anonymous node may act as a broker if ``node_may``."""

    def __init__(self, *, node_may: bool = True) -> None:
        super().__init__(
            lambda operation, *_: (
                node_may if operation == "ClusterAction" else self.asked_for[-1][0] == "User:alice"
            )
        )


def create(name: str = "t") -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)])


def send(broker: BrokerHarness, envelope: EnvelopeRequest) -> EnvelopeResponse:
    """The answer. The connection, which is another node's and carries the requests of many clients, stays open."""
    connection = broker.connect(CONTROLLER_LISTENER)
    answer = broker.ask(envelope, 0, connection=connection)
    assert connection.closed is None
    assert isinstance(answer, EnvelopeResponse)
    return answer


def wrapped(data: bytes | None = None) -> EnvelopeRequest:
    """Alice's request for a topic, or another inner frame."""
    envelope = enveloped(create(), 7, 9, ALICE)
    return envelope if data is None else replace(envelope, request_data=data)


INNER = bytes(wrapped().request_data)


def ask(broker: BrokerHarness, request: Message, version: int, on_behalf: OnBehalf = ALICE) -> Any:
    return inner_answer(
        send(broker, enveloped(request, version, 9, on_behalf)), request.meta.key or 0, version
    )


def test_the_inner_request_is_authorized_with_its_own_principal() -> None:
    rules = Rules()
    broker = BrokerHarness(authorizer=rules)
    answer = ask(broker, create(), 7)
    assert isinstance(answer, CreateTopicsResponse)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("t", 0)]
    alices = zip(rules.asked, rules.asked_for, strict=True)
    assert (("Create", "Cluster", "kafka-cluster"), ("User:alice", "192.0.2.7")) in alices
    assert broker.metadata.on_behalf[-1] == ALICE
    mallory = ask(broker, create("u"), 7, OnBehalf(Principal("mallory"), "192.0.2.8", ""))
    assert mallory.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "u" not in broker.metadata.image.topics


def test_only_a_node_of_the_cluster_may_forward() -> None:
    """Without ClusterAction anybody could claim to be alice."""
    broker = BrokerHarness(authorizer=Rules(node_may=False))
    envelope = send(broker, wrapped())
    assert envelope.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert broker.metadata.image.topics == {}


@pytest.mark.parametrize("controller", [None, Controller(2, 5)])
def test_another_node_than_the_controller_does_not_forward_again(controller: Controller | None) -> None:
    broker = BrokerHarness()
    broker.metadata.controller = controller
    assert send(broker, wrapped()).error_code == ErrorCode.NOT_CONTROLLER
    assert broker.metadata.image.topics == {}


def test_a_controller_that_resigns_meanwhile_has_the_request_forwarded_again() -> None:
    """The client must not see NOT_CONTROLLER: it does not know controllers."""
    broker = BrokerHarness()

    def resign(_: Message) -> Message:
        broker.metadata.controller = Controller(2, 6)
        raise BrokerError(ErrorCode.NOT_CONTROLLER)

    broker.metadata.answers[CreateTopicsRequest] = resign
    assert send(broker, wrapped()).error_code == ErrorCode.NOT_CONTROLLER


def test_a_version_that_is_not_served_is_refused() -> None:
    unserved = wrapped(b"\0\x13\0\x63" + INNER[4:])
    assert send(BrokerHarness(), unserved).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("values", [200, 4096])
def test_a_large_inner_request_is_copied_once(values: int) -> None:
    """Out of the frame, whose memory is used again. The strings of the decoded request are the second time that its
    bytes are in memory. The request of 4,096 values is served in slices."""
    size = (4 << 20) // values
    configs = [AlterableConfig(name="retention.ms", value="9" * size) for _ in range(values)]
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=configs)
    broker = BrokerHarness()
    at_submit: list[int] = []

    def refuse(_: Message) -> Message:
        at_submit.append(tracemalloc.get_traced_memory()[1])
        raise BrokerError(ErrorCode.POLICY_VIOLATION)

    broker.metadata.answers[IncrementalAlterConfigsRequest] = refuse
    envelope = enveloped(IncrementalAlterConfigsRequest(resources=[resource]), 1, 9, ALICE)
    frame = broker.frame(envelope, 0)
    connection = broker.connect(CONTROLLER_LISTENER)
    tracemalloc.start()
    try:
        exchange = broker.send_frame(frame, connection)
    finally:
        tracemalloc.stop()
    inner = inner_answer(broker.response(exchange, envelope, 0), 44, 1)
    assert isinstance(inner, IncrementalAlterConfigsResponse)
    assert inner.responses[0].error_code == ErrorCode.POLICY_VIOLATION
    assert at_submit[0] < 2.6 * (4 << 20)


@pytest.mark.parametrize("key", [0, 1, 3, 17, 36, 58, 62, 63])
def test_other_requests_are_not_served_in_an_envelope(key: int) -> None:
    """Produce, Fetch, Metadata, SASL, a second Envelope, a node's own commands: none may borrow a principal."""
    broker = BrokerHarness()
    for version in range(3):
        other = wrapped(struct.pack(">hh", key, version) + INNER[4:])
        assert send(broker, other).error_code == ErrorCode.INVALID_REQUEST


GARBAGE = [b"", b"\0", b"\0\x13\0\7\0\0\0\1", bytes(14), b"\xff" * 64, INNER[:-3]]


@pytest.mark.parametrize("data", GARBAGE)
def test_garbage_in_an_envelope_fails_alone(data: bytes) -> None:
    broker = BrokerHarness()
    assert send(broker, wrapped(data)).error_code == ErrorCode.INVALID_REQUEST
    assert "defect" not in str(broker.log.events)


def test_it_is_served_on_controller_listeners_only() -> None:
    broker = BrokerHarness()
    assert 58 in broker.broker.advertised("controller")
    assert 58 not in broker.broker.advertised("broker")


def test_clients_requests_name_their_client_and_wait_for_the_image() -> None:
    broker = BrokerHarness()
    broker.ask(create(), 7, client_id="shop")
    assert broker.metadata.on_behalf[-1] == OnBehalf(Principal(), "127.0.0.1", "shop")
    assert broker.metadata.waited_for_image[-1]


def test_heartbeats_do_not_wait_for_the_image() -> None:
    """A node whose image is behind must still say that it lives."""
    broker = BrokerHarness()
    broker.runtime.advance(2_100)
    assert not broker.metadata.waited_for_image[-1]
    assert broker.metadata.on_behalf[-1] is None
