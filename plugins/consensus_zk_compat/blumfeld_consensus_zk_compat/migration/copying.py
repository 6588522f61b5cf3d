"""What a migration brings from the tree into the log, and what the log's image has that the tree hasn't. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from blumfeld.metadata.brokers.migration import MigrationState, migration_state
from blumfeld.metadata.image.cluster_image import METADATA_VERSION_FEATURE, MetadataImage
from blumfeld.metadata.image.difference import difference
from blumfeld.metadata.image.kept import KEPT
from blumfeld.metadata.image.records import image_records
from blumfeld.metadata.slices import SLICE_LOOKS, SLICE_RECORDS
from blumfeld.spi.cluster import ImageDelta, TopicImage
from blumfeld.spi.completion import Steps
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.messages.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.change import Change, PartitionStep
from blumfeld_consensus_zk_compat.pushes.plan import TreeTopics
from blumfeld_consensus_zk_compat.tree.forms import MIGRATES
from blumfeld_consensus_zk_compat.tree.loading import Loaded


def of_tree(registration: RegisterBrokerRecord) -> RegisterBrokerRecord:
    """Returns the registration of a broker whose life is its znode."""
    return replace(registration, is_migrating_zk_broker=True)


def unready(brokers: Mapping[int, RegisterBrokerRecord]) -> list[int]:
    """Returns the brokers that would not obey a controller of KRaft."""
    return [
        broker_id
        for broker_id, registration in sorted(brokers.items())
        if not any(feature.name == MIGRATES for feature in registration.features)
    ]


def unfinished(tree: Loaded) -> str:
    """Returns what is in the way of a copy: what the tree's own controller has to finish, or the operator to mend. Or
    "" if nothing is."""
    if tree.unreadable:
        return f"nodes can't be read: {', '.join(tuple(tree.unreadable)[:3])}"
    if tree.marked:
        return f"topics are being deleted: {', '.join(topic.name for topic in tree.marked[:3])}"
    if tree.without_id:
        return "topics have no ids"
    if tree.without_state:
        return f"partitions have no state: {tree.without_state[0]}"
    if tree.reassignments_asked is not None or tree.elections_asked is not None:
        return "a reassignment or an election that was asked for"
    return ""


def copied_records(tree: Loaded) -> Steps[list[Message]]:
    """Returns the records that bring the tree into an empty log, in steps: its brokers, topics and everything else, and
    that the log has them."""
    records: list[Message] = []
    for record in image_records(tree.image):
        if isinstance(record, RegisterControllerRecord):
            continue
        if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION_FEATURE:
            continue
        records.append(of_tree(record) if isinstance(record, RegisterBrokerRecord) else record)
        if not len(records) % SLICE_RECORDS:
            yield None
    records.append(ZkMigrationStateRecord(zk_migration_state=MigrationState.MIGRATION))
    return records


def is_untouched(image: MetadataImage) -> bool:
    """Whether the log holds no cluster of its own, so that one may be copied into it."""
    return (
        migration_state(image) is MigrationState.NONE
        and not image.topics
        and not image.registrations
        and not image.configs
    )


def change_of(delta: ImageDelta, written: TreeTopics) -> Steps[Change]:
    """Returns one step of the image as the tree and the brokers are told of it; a large one in steps.

    :param written: the topics before the step; takes it over
    """
    new = {topic.topic_id for topic in delta.topics_created}
    steps = []
    for number, (topic, after) in enumerate(delta.partitions_changed, start=1):
        if not number % SLICE_LOOKS:
            yield None
        at = TopicPartition(topic.name, after.partition)
        before = None if topic.topic_id in new else written.partition(at)
        if before is None or before.partition_epoch != after.partition_epoch:
            steps.append(PartitionStep(topic.name, topic.topic_id, before, after))
    gone = [step for topic in delta.topics_deleted for step in _gone(topic)]
    change = Change(
        topics_created=delta.topics_created,
        topics_deleted=delta.topics_deleted,
        partitions=(*gone, *steps),
        brokers=delta.brokers_changed,
        configs=delta.configs_changed,
        records=delta.kept_records,
    )
    written.apply(change)
    return change


def _gone(topic: TopicImage) -> Iterator[PartitionStep]:
    for partition in topic.partitions.values():
        yield PartitionStep(topic.name, topic.topic_id, partition, None)


def missing(tree: MetadataImage, image: MetadataImage, written: TreeTopics) -> Steps[Change]:
    """Returns what the image has and the tree hasn't, in steps: what an earlier leader of the quorum did not come to
    write. Neither may change meanwhile.

    :param written: the tree's topics; takes it over
    """
    found = yield from difference(tree, image)
    records = list(_kept_differing(tree, image))
    if image.producer_ids is not None and image.producer_ids != tree.producer_ids:
        records.append(image.producer_ids)
    delta = replace(found.delta, kept_records=tuple(records))
    return (yield from change_of(delta, written))


def _kept_differing(tree: MetadataImage, image: MetadataImage) -> Iterator[Message]:
    for key, record in tree.kept.items():
        if key not in image.kept:
            yield from removal_of(record)
    for key, record in image.kept.items():
        if tree.kept.get(key) != record and not isinstance(record, ZkMigrationStateRecord):
            yield record


def removal_of(record: Message) -> Sequence[Message]:
    """Returns the record that removes what another one has set."""
    match record:
        case AccessControlEntryRecord():
            return [RemoveAccessControlEntryRecord(id=record.id)]
        case UserScramCredentialRecord():
            return [RemoveUserScramCredentialRecord(name=record.name, mechanism=record.mechanism)]
        case DelegationTokenRecord():
            return [RemoveDelegationTokenRecord(token_id=record.token_id)]
        case ClientQuotaRecord():
            return [replace(record, remove=True)]
    assert type(record) in KEPT
    return []
