"""FindCoordinator, by its handler: it is served only where a group protocol is composed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import msgspec
import pytest

from blumfeld.broker.handlers.broker.api_10_find_coordinator import FindCoordinator, failed, handlers
from blumfeld.broker.ports import CoordinatorKind
from blumfeld.spi.context import RequestContext
from blumfeld.spi.groups import GroupProtocol
from blumfeld.spi.internal_topics import OFFSETS_TOPIC, SHARE_GROUPS_TOPIC, TRANSACTIONS_TOPIC
from blumfeld.spi.transport import Listener
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.create_topics import CreateTopicsRequest
from blumfeld.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.broker.fake_transactions import FakeTransactions
from tests.broker.harness import LISTENER, BrokerHarness


@dataclass
class Context:
    """As much of a context as the handler reads."""

    api_version: int
    listener: Listener = LISTENER

    def authorize(self, operation: str, resource_type: str, name: str, *, quiet: bool = False) -> bool:
        return name != "secret"


@pytest.fixture
def broker() -> BrokerHarness:
    return BrokerHarness()


def ask(broker: BrokerHarness, request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
    kinds = {0: CoordinatorKind(0, OFFSETS_TOPIC, "Group", ErrorCode.GROUP_AUTHORIZATION_FAILED)}
    ports = broker.broker.ports._replace(coordinators=lambda: kinds)
    return FindCoordinator(ports).handle(request, cast("RequestContext", Context(version)))


def test_it_is_not_served_without_a_group_protocol(broker: BrokerHarness) -> None:
    assert 10 not in broker.broker.advertised("broker")
    assert handlers(broker.broker.ports)[0].key == 10


def test_the_internal_topic_is_made_and_the_client_asked_to_wait(broker: BrokerHarness) -> None:
    answer = ask(broker, FindCoordinatorRequest(key="g"), 2)
    assert (answer.error_code, answer.node_id, answer.host) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "")
    broker.runtime.run_turn()
    topic = broker.metadata.image.topics["__consumer_offsets"]
    assert len(topic.partitions) == 50
    assert broker.broker.cluster.topic_config(topic.name).compacts
    answer = ask(broker, FindCoordinatorRequest(key="g"), 2)
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 1, "127.0.0.1", 9092)


def test_in_a_cluster_an_internal_topic_waits_for_brokers_for_all_its_replicas() -> None:
    """Made with the first broker that is there, it would keep one replica for good."""
    broker = BrokerHarness(single_node=False)
    request = FindCoordinatorRequest(key="g")
    for _ in range(2):
        assert ask(broker, request, 2).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.runtime.run_turn()
    assert OFFSETS_TOPIC not in broker.metadata.image.topics
    assert {event[1] for event in broker.log.events} == {"internal topic waits for brokers"}
    own = broker.metadata.image.brokers[1]
    for node in (2, 3):
        broker.metadata.image.brokers[node] = msgspec.structs.replace(own, broker_id=node)
    ask(broker, request, 2)
    broker.runtime.run_turn()
    (creation,) = broker.metadata.sent(CreateTopicsRequest)
    assert creation.topics[0].replication_factor == 3


def test_several_keys_at_once(broker: BrokerHarness) -> None:
    broker.create_topic("__consumer_offsets", 50)
    answer = ask(broker, FindCoordinatorRequest(coordinator_keys=["a", "secret"]), 4)
    assert [(c.key, c.error_code, c.node_id) for c in answer.coordinators] == [
        ("a", 0, 1),
        ("secret", ErrorCode.GROUP_AUTHORIZATION_FAILED, -1),
    ]


@pytest.mark.parametrize(
    ("key_type", "code"),
    [
        (1, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (2, ErrorCode.INVALID_REQUEST),
        (9, ErrorCode.INVALID_REQUEST),
    ],
)
def test_other_coordinators_are_refused(broker: BrokerHarness, key_type: int, code: ErrorCode) -> None:
    assert ask(broker, FindCoordinatorRequest(key="k", key_type=key_type), 1).error_code == code


def test_the_coordinator_of_transactions_may_be_a_broker_of_kafka(broker: BrokerHarness) -> None:
    """A build without transactions tells where they are, unless that would be itself."""
    broker.create_topic(TRANSACTIONS_TOPIC, 1)
    request = FindCoordinatorRequest(coordinator_keys=["app", "secret"], key_type=1)
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert [c.error_code for c in ask(broker, request, 4).coordinators] == [refused, refused]
    own = broker.metadata.image.brokers[1]
    broker.metadata.image.brokers[2] = msgspec.structs.replace(own, broker_id=2)
    broker.change_partition(TRANSACTIONS_TOPIC, replicas=(2, 1), leader=2, epoch=1)
    coordinators = ask(broker, request, 4).coordinators
    assert [(c.key, c.error_code, c.node_id) for c in coordinators] == [
        ("app", 0, 2),
        ("secret", refused, -1),
    ]


def test_any_coordinator_is_found_by_its_key_type(broker: BrokerHarness) -> None:
    """Here one that this build doesn't have."""
    kind = CoordinatorKind(2, SHARE_GROUPS_TOPIC, "Group", ErrorCode.GROUP_AUTHORIZATION_FAILED)
    broker.create_topic(SHARE_GROUPS_TOPIC, 3)
    find = FindCoordinator(broker.broker.ports._replace(coordinators=lambda: {2: kind}))
    context = cast("RequestContext", Context(6))
    answer = find.handle(FindCoordinatorRequest(coordinator_keys=["g:t:0", "secret"], key_type=2), context)
    assert [(c.error_code, c.node_id) for c in answer.coordinators] == [
        (0, 1),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, -1),
    ]
    refused = find.handle(FindCoordinatorRequest(coordinator_keys=["g"], key_type=0), context)
    assert refused.coordinators[0].error_code == ErrorCode.INVALID_REQUEST


def test_a_composition_has_the_coordinators_of_its_parts(broker: BrokerHarness) -> None:
    assert broker.broker.ports.coordinators() == {}
    broker.broker.composition.group_protocols = (cast("GroupProtocol", object()),)
    broker.broker.composition.transactions = FakeTransactions()
    kinds = broker.broker.ports.coordinators()
    assert {key: kind.topic for key, kind in kinds.items()} == {0: OFFSETS_TOPIC, 1: TRANSACTIONS_TOPIC}


def test_an_error_takes_both_forms() -> None:
    assert failed(FindCoordinatorRequest(key="k"), 15, None).error_code == 15
    assert failed(FindCoordinatorRequest(coordinator_keys=["k"]), 15, None).coordinators[0].error_code == 15
