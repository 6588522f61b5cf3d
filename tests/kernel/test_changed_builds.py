"""A data directory, from build to build: what one build wrote, and another one lacks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from blumfeld.client.asyncio_connection import connect
from blumfeld.client.versions import SPOKEN
from blumfeld.kernel.node import StartError
from blumfeld.metadata.image.checkpoint import decode_checkpoint
from blumfeld.testing.embedded import EmbeddedBroker
from blumfeld.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
    RequestEntryData,
)
from blumfeld.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from blumfeld.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from blumfeld.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from blumfeld.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from blumfeld.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from blumfeld.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from blumfeld.wire.messages.metadata_records import FeatureLevelRecord
from blumfeld.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from blumfeld.wire.schema import Message
from tests.metadata.test_records import kafkas

QUOTAS = {"quotas": {"plugin": "quotas"}}
NO_TRANSACTIONS = {"transactions": {"plugin": "none"}}
ONLY_CLASSIC = {"groups": {"plugins": ["groups_classic"]}}


def broker(directory: Path, manifest: Mapping[str, Any] | None = None, **more: Any) -> EmbeddedBroker:
    return EmbeddedBroker(storage="storage_local", data_dir=str(directory), manifest=manifest or {}, **more)


def refusal(directory: Path, manifest: Mapping[str, Any] | None = None, **more: Any) -> str:
    """Why this build doesn't start on the directory."""
    with pytest.raises(StartError) as caught, broker(directory, manifest, **more):
        pass
    assert caught.value.is_final
    return str(caught.value)


def asked(running: EmbeddedBroker, request: Message, expected: type[Any]) -> Any:
    async def ask() -> Message:
        connection = await connect(running.host, running.port, "test")
        try:
            await connection.negotiate(SPOKEN)
            return await connection.ask(request, expected)
        finally:
            connection.close()

    return asyncio.run(ask())


def lower(running: EmbeddedBroker, feature: str) -> int:
    update = FeatureUpdateKey(feature=feature, max_version_level=0, upgrade_type=2)
    request = UpdateFeaturesRequest(feature_updates=[update], timeout_ms=5_000)
    code: int = asked(running, request, UpdateFeaturesResponse).error_code
    return code


@pytest.mark.parametrize(
    ("feature", "plugin", "without"),
    [
        ("transaction.version at level 2", "transactions", NO_TRANSACTIONS),
        ("group.version at level 1", "groups_kip848", ONLY_CLASSIC),
    ],
)
def test_a_level_that_the_build_does_not_know_is_lowered_by_one_that_does(
    tmp_path: Path, feature: str, plugin: str, without: dict[str, Any]
) -> None:
    with broker(tmp_path):
        pass
    assert f"the feature {feature}, which the plug-in {plugin} brings" in refusal(tmp_path, without)
    with broker(tmp_path) as running:
        assert lower(running, feature.partition(" ")[0]) == 0
    with broker(tmp_path, without):
        pass
    with broker(tmp_path):  # and the way back
        pass


@pytest.mark.parametrize(
    ("key_type", "topic", "feature", "without"),
    [
        (1, "__transaction_state", "transaction.version", NO_TRANSACTIONS),
        (0, "__consumer_offsets", "group.version", {"groups": {"plugins": []}}),
    ],
)
def test_a_coordinators_topic_needs_its_plug_in_until_it_is_deleted(
    tmp_path: Path, key_type: int, topic: str, feature: str, without: dict[str, Any]
) -> None:
    with broker(tmp_path) as running:
        assert lower(running, feature) == 0
        finding = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["a"])
        asked(running, finding, FindCoordinatorResponse)  # makes the topic
    assert f"the topic {topic}, which the plug-in" in refusal(tmp_path, without)
    with broker(tmp_path) as running:
        deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=5_000)
        [result] = asked(running, deletion, DeleteTopicsResponse).responses
        assert result.error_code == 0, result.error_message
    with broker(tmp_path, without):
        pass


def test_quotas_need_their_plug_in_until_they_are_taken_away(tmp_path: Path) -> None:
    def altered(running: EmbeddedBroker, *, remove: bool) -> int:
        entity = [EntityData(entity_type="user", entity_name="bob")]
        operation = OpData(key="producer_byte_rate", value=1e6, remove=remove)
        request = AlterClientQuotasRequest(entries=[RequestEntryData(entity=entity, ops=[operation])])
        [entry] = asked(running, request, AlterClientQuotasResponse).entries
        code: int = entry.error_code
        return code

    with broker(tmp_path, QUOTAS) as running:
        assert altered(running, remove=False) == 0
    complaint = refusal(tmp_path)
    assert "client quotas (producer_byte_rate of user bob), which the plug-in quotas reads" in complaint
    with broker(tmp_path, QUOTAS) as running:
        assert altered(running, remove=True) == 0
    with broker(tmp_path):
        pass


def test_credentials_need_security(tmp_path: Path) -> None:
    secured = {"security": {"plugin": "security"}}
    with broker(tmp_path, secured) as running:
        upsertion = ScramCredentialUpsertion(
            name="bob", mechanism=1, iterations=4096, salt=b"s" * 16, salted_password=b"p" * 32
        )
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
        [result] = asked(running, request, AlterUserScramCredentialsResponse).results
        assert result.error_code == 0, result.error_message
    assert "SCRAM credentials (one of the user bob), which the plug-in security reads" in refusal(tmp_path)
    with broker(tmp_path, secured):
        pass


def test_tiered_topics_need_a_storage_that_tiers(tmp_path: Path) -> None:
    data = tmp_path / "data"

    def tiered() -> EmbeddedBroker:
        store = {"store": f"file://{tmp_path}/store"}
        return EmbeddedBroker(data_dir=str(data), storage="storage_tiered", storage_options=store)

    with tiered() as running:
        topic = CreatableTopic(
            name="ticks",
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name="remote.storage.enable", value="true")],
        )
        [result] = asked(running, CreateTopicsRequest(topics=[topic]), CreateTopicsResponse).topics
        assert result.error_code == 0, result.error_message
    complaint = refusal(data)
    assert "the topic ticks with remote.storage.enable, which the plug-in storage_tiered serves" in complaint
    with tiered():
        pass


def test_another_storage_does_not_open_what_storage_local_wrote(tmp_path: Path) -> None:
    with broker(tmp_path):
        pass
    with (
        pytest.raises(
            StartError, match="holds logs of the storage storage_local, and this build has storage_memory"
        ),
        EmbeddedBroker(storage="storage_memory", data_dir=str(tmp_path)),
    ):
        pass
    assert not (tmp_path / ".blumfeld_storage").exists()  # the directory is still one of Kafka's


def test_storage_local_does_not_open_what_another_storage_wrote(tmp_path: Path) -> None:
    (tmp_path / ".blumfeld_storage").write_text("storage_acme\n")
    complaint = refusal(tmp_path)
    assert f"{tmp_path} holds logs of the storage storage_acme, and this build has storage_local" in complaint
    assert sorted(path.name for path in tmp_path.iterdir()) == [".blumfeld_storage"]


def test_a_storage_in_memory_marks_nothing(tmp_path: Path) -> None:
    with EmbeddedBroker(storage="storage_memory", data_dir=str(tmp_path)):
        pass
    assert list(tmp_path.iterdir()) == []
    with broker(tmp_path):
        pass


def test_acls_need_security_until_they_are_deleted(tmp_path: Path) -> None:
    secured = {"security": {"plugin": "security", "options": {"acls": {"super_users": ["User:ANONYMOUS"]}}}}
    authorizer = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    entry = AclCreation(
        resource_type=2,
        resource_name="orders",
        resource_pattern_type=3,
        principal="User:bob",
        host="*",
        operation=3,
        permission_type=3,
    )
    with broker(tmp_path, secured, config=authorizer) as running:
        [result] = asked(running, CreateAclsRequest(creations=[entry]), CreateAclsResponse).results
        assert result.error_code == 0, result.error_message
    complaint = refusal(tmp_path)
    assert "ACLs (one for User:bob on orders), which the plug-in security reads" in complaint
    everything = DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    with broker(tmp_path, secured, config=authorizer) as running:
        request = DeleteAclsRequest(filters=[everything])
        [deleted] = asked(running, request, DeleteAclsResponse).filter_results
        assert len(deleted.matching_acls) == 1
    with broker(tmp_path):
        pass


def test_features_of_kafka_alone_are_no_reason_to_refuse(tmp_path: Path) -> None:
    """A directory that Kafka formatted has levels of share groups and streams groups."""
    bootstrap = kafkas("bootstrap")
    levels = {
        record.name
        for record in decode_checkpoint(bootstrap, "b").records
        if isinstance(record, FeatureLevelRecord)
    }
    assert {"share.version", "streams.version"} <= levels
    properties = (
        "version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAZA\n"
    )
    (tmp_path / "meta.properties").write_text(properties)
    (tmp_path / "bootstrap.checkpoint").write_bytes(bootstrap)
    with broker(tmp_path) as running:
        assert running.node.composition.metadata.image.features["share.version"] == 1
    with broker(tmp_path):
        pass
