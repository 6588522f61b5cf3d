"""What a tree can't keep, told from a decision's records before an image has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.spi.cluster import GROUP_RESOURCE, PartitionImage, TopicImage
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    PartitionRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.tree.forms import NoFormError
from blumfeld_consensus_zk_compat.tree.merging import NodeChange, node_path
from blumfeld_consensus_zk_compat.tree.versions import KnownAcls

FITS_ALWAYS = 1_000
"""Partitions of a topic whose assignment fits one node for certain."""
SECURITY_RECORDS = (AccessControlEntryRecord, ClientQuotaRecord, UserScramCredentialRecord)
"""Records that Kafka 3.9 may have no form for."""


def check_fits(records: Sequence[Message], image: MetadataImage, fits: Callable[[TopicImage], bool]) -> None:
    """Refuse what a tree can't keep.

    :param fits: as ``TreeWriter.fits``
    :raises BrokerError: INVALID_REQUEST: the configuration of a group, or an ACL, credential or quota that Kafka 3.9
        has no form for; POLICY_VIOLATION: the assignment of a topic is too large for one node
    """
    grown: dict[bytes, dict[int, PartitionImage]] = {}
    names: dict[bytes, str] = {}
    for record in records:
        if isinstance(record, ConfigRecord) and record.resource_type == GROUP_RESOURCE:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                "a ZooKeeper keeps no configuration of groups: Kafka 3.9 has none there",
            )
        try:
            if isinstance(record, SECURITY_RECORDS) and (path := node_path(record, KnownAcls())) is not None:
                NodeChange(path, [record]).merged(None)
        except NoFormError as error:
            raise BrokerError(ErrorCode.INVALID_REQUEST, str(error)) from None
        if isinstance(record, TopicRecord):
            names[record.topic_id] = record.name
        elif isinstance(record, PartitionRecord):
            partition = PartitionImage(
                partition=record.partition_id,
                replicas=tuple(record.replicas),
                isr=(),
                leader=record.leader,
                leader_epoch=0,
                partition_epoch=0,
            )
            grown.setdefault(record.topic_id, {})[record.partition_id] = partition
    for topic_id, new in grown.items():
        known = image.topic_by_id(topic_id)
        there = {} if known is None else known.partitions
        if len(there) + len(new) < FITS_ALWAYS:
            continue
        name = known.name if known is not None else names.get(topic_id, "")
        if not fits(TopicImage(name=name, topic_id=topic_id, partitions={**there, **new})):
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION,
                f"the assignment of {len(there) + len(new)} partitions doesn't fit one node of the ZooKeeper: "
                "jute.maxbuffer limits it",
            )
