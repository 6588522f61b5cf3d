"""UpdateFeatures, UnregisterBroker and ListConfigResources, as clients see them."""

from __future__ import annotations

import pytest

from blumfeld.spi.cluster import GROUP_RESOURCE, TOPIC_RESOURCE
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from blumfeld.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from blumfeld.wire.messages.list_config_resources import ListConfigResourcesRequest
from blumfeld.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from blumfeld.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from blumfeld.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from blumfeld.wire.schema import Message
from tests.broker.harness import BrokerHarness, Permissions


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_controllers_refusal_of_a_feature_reaches_every_version(version: int) -> None:
    """Its error stands at the top: an old client that saw 0 there believed that all was done."""
    broker = BrokerHarness()
    code = ErrorCode.INVALID_UPDATE_VERSION
    result = UpdatableFeatureResult(feature="group.version", error_code=code, error_message="no")
    refused = UpdateFeaturesResponse(error_code=code, error_message="no", results=[result])
    broker.metadata.answers[UpdateFeaturesRequest] = lambda _: refused
    update = FeatureUpdateKey(feature="group.version", max_version_level=0, allow_downgrade=version == 0)
    answer = broker.ask(UpdateFeaturesRequest(feature_updates=[update]), version)
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_UPDATE_VERSION, "no")
    assert len(answer.results) == (0 if version == 2 else 1)
    (sent,) = broker.metadata.sent(UpdateFeaturesRequest)[0].feature_updates
    assert (sent.upgrade_type, sent.allow_downgrade) == (2 if version == 0 else 1, False)


@pytest.mark.parametrize(("version", "code"), [(0, 0), (1, 31), (2, 31)])
def test_an_election_without_permission(version: int, code: int) -> None:
    """Version 0 has no error of the whole: each partition has it."""
    broker = BrokerHarness(authorizer=Permissions())
    asked = TopicPartitions(topic="t", partitions=[0, 1])
    answer = broker.ask(ElectLeadersRequest(topic_partitions=[asked]), version)
    assert answer.error_code == code
    (topic,) = answer.replica_election_results
    codes = [one.error_code for one in topic.partition_result]
    assert codes == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 2


def test_groups_with_a_configuration_of_their_own_are_listed() -> None:
    broker = BrokerHarness()
    broker.create_topic("u")
    broker.create_topic("t")
    broker.metadata.image.configs[GROUP_RESOURCE, "g"] = {"consumer.session.timeout.ms": "46000"}
    listed = broker.ask(ListConfigResourcesRequest(resource_types=[GROUP_RESOURCE, TOPIC_RESOURCE]), 1)
    assert [(r.resource_type, r.resource_name) for r in listed.config_resources] == [
        (GROUP_RESOURCE, "g"),
        (TOPIC_RESOURCE, "t"),
        (TOPIC_RESOURCE, "u"),
    ]
    everything = broker.ask(ListConfigResourcesRequest(), 1).config_resources
    assert {r.resource_type for r in everything} >= {GROUP_RESOURCE, TOPIC_RESOURCE}
    assert broker.ask(ListConfigResourcesRequest(), 0).config_resources == []
    unknown = ListConfigResourcesRequest(resource_types=[99])
    assert broker.ask(unknown, 1).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_the_controller_forgets_a_broker() -> None:
    broker = BrokerHarness()
    refused = UnregisterBrokerResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED, error_message="no")
    broker.metadata.answers[UnregisterBrokerRequest] = lambda _: refused
    answer = broker.ask(UnregisterBrokerRequest(broker_id=7), 0)
    assert (answer.error_code, answer.error_message) == (ErrorCode.BROKER_ID_NOT_REGISTERED, "no")
    assert broker.metadata.sent(UnregisterBrokerRequest) == [UnregisterBrokerRequest(broker_id=7)]


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (ListConfigResourcesRequest(), 1),
        (UpdateFeaturesRequest(), 2),
        (UnregisterBrokerRequest(), 0),
        (ListPartitionReassignmentsRequest(), 0),
        (AlterPartitionReassignmentsRequest(), 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_client_without_permission_is_refused(request_: Message, version: int) -> None:
    answer = BrokerHarness(authorizer=Permissions()).ask(request_, version)
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
