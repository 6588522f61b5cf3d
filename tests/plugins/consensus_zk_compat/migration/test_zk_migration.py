"""Decisions of the quorum, as they are fitted to brokers that read the tree."""

from __future__ import annotations

import pytest

from blumfeld.metadata.image.records import image_of
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.alter_partition import AlterPartitionRequest
from blumfeld.wire.messages.create_topics import CreateTopicsRequest
from blumfeld.wire.messages.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    ZkMigrationStateRecord,
)
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.migration.zk_migration import ZkMigration
from tests.plugins.consensus_zk_compat.migration.migrating import Migrating

TOPIC = b"t" * 16


def migration() -> ZkMigration:
    nodes = Migrating(quorum=1)
    made: list[ZkMigration] = []

    async def story() -> None:
        await nodes.start_quorum()
        node = nodes.all[4].node
        assert node is not None
        part = node.composition.migration
        assert isinstance(part, ZkMigration)
        made.append(part)

    nodes.run(story())
    return made[0]


def image(state: int, *, reads_tree: bool = True) -> object:
    records: list[Message] = [
        ZkMigrationStateRecord(zk_migration_state=state),
        RegisterBrokerRecord(
            broker_id=1, broker_epoch=7, fenced=False, is_migrating_zk_broker=reads_tree, rack=None
        ),
        TopicRecord(name="orders", topic_id=TOPIC),
        PartitionRecord(partition_id=0, topic_id=TOPIC, replicas=[1, 2], isr=[1, 2], leader=1),
    ]
    return image_of("c", records)


def test_decisions_are_fitted_to_a_tree_while_it_follows() -> None:
    """One composition for all: to make one takes longer than the rest."""
    part = migration()

    def leader_after(command: object, *, reads_tree: bool = True, state: int = 2) -> int:
        record = PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=[1])
        part.review(command, image(state, reads_tree=reads_tree), [record])  # type: ignore[arg-type]
        return record.leader

    assert leader_after("a broker went") == 1, "a leader epoch begins"
    assert leader_after("a broker went", reads_tree=False) == -2
    assert leader_after("a broker went", state=3) == -2
    assigned = PartitionChangeRecord(partition_id=0, topic_id=TOPIC, directories=[b"d" * 16, b"e" * 16])
    part.review("a broker assigns directories", image(2), [assigned])  # type: ignore[arg-type]
    assert assigned.leader == 1
    assert leader_after(AlterPartitionRequest()) == -2, "the leader has asked for it"
    for records, code in (
        ([FeatureLevelRecord(name="group.version", feature_level=1)], ErrorCode.INVALID_REQUEST),
        (
            [
                ConfigRecord(
                    resource_type=32, resource_name="g", name="consumer.session.timeout.ms", value="1"
                )
            ],
            ErrorCode.INVALID_REQUEST,
        ),
    ):
        with pytest.raises(BrokerError) as refused:
            part.review("x", image(2), records)  # type: ignore[arg-type]
        assert refused.value.code is code
        part.review("x", image(3), records)  # type: ignore[arg-type]
    with pytest.raises(BrokerError) as refused:
        part.review(CreateTopicsRequest(), image_of("c", []), [])
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    part.review("work of its own", image_of("c", []), [])
