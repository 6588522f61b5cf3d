# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""The records of __cluster_metadata, framed by version 1, record type, version."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class BrokerEndpoint(Struct):
    """Part of RegisterBrokerRecord."""

    name: Annotated[str, Wire("string")] = ""
    host: Annotated[str, Wire("string")] = ""
    port: Annotated[int, Wire("uint16")] = 0
    security_protocol: Annotated[int, Wire("int16")] = 0


class BrokerFeature(Struct):
    """Part of RegisterBrokerRecord."""

    name: Annotated[str, Wire("string")] = ""
    min_supported_version: Annotated[int, Wire("int16")] = 0
    max_supported_version: Annotated[int, Wire("int16")] = 0


class RegisterBrokerRecord(Message):
    """A broker has come with a new incarnation. Record type 0, versions 0-4.

    ``fenced`` brokers lead nothing until UnfenceBrokerRecord or a change record. ``log_dirs`` are its
    directory ids (version 3).
    """

    meta: ClassVar[Api] = Api("RegisterBrokerRecord", 0, "metadata", valid="0-4", flexible="0+")

    broker_id: Annotated[int, Wire("int32")] = 0
    is_migrating_zk_broker: Annotated[bool, Wire("bool", versions="2+")] = False
    incarnation_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    broker_epoch: Annotated[int, Wire("int64")] = 0
    end_points: Annotated[list[BrokerEndpoint], Wire("[]struct")] = field(default_factory=list)
    features: Annotated[list[BrokerFeature], Wire("[]struct")] = field(default_factory=list)
    rack: Annotated[str | None, Wire("string", nullable="0+")] = ""
    fenced: Annotated[bool, Wire("bool")] = True
    in_controlled_shutdown: Annotated[bool, Wire("bool", versions="1+")] = False
    log_dirs: Annotated[list[bytes], Wire("[]uuid", versions="3+", tag=0, tagged="3+")] = field(
        default_factory=list
    )
    cordoned_log_dirs: Annotated[
        list[bytes] | None, Wire("[]uuid", versions="4+", nullable="4+", tag=1, tagged="4+")
    ] = None


class UnregisterBrokerRecord(Message):
    """Record type 1: version 0, flexible."""

    meta: ClassVar[Api] = Api("UnregisterBrokerRecord", 1, "metadata", valid="0", flexible="0+")

    broker_id: Annotated[int, Wire("int32")] = 0
    broker_epoch: Annotated[int, Wire("int64")] = 0


class TopicRecord(Message):
    """Record type 2: version 0, flexible."""

    meta: ClassVar[Api] = Api("TopicRecord", 2, "metadata", valid="0", flexible="0+")

    name: Annotated[str, Wire("string")] = ""
    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID


class PartitionRecord(Message):
    """A partition has been created, whole. Record type 3, versions 0-2.

    ``directories`` (1) stand beside ``replicas``, one for one. The ELR lists (2) are null where there is none
    (KIP-966).
    """

    meta: ClassVar[Api] = Api("PartitionRecord", 3, "metadata", valid="0-2", flexible="0+")

    partition_id: Annotated[int, Wire("int32")] = -1
    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    replicas: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)
    isr: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)
    removing_replicas: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)
    adding_replicas: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)
    leader: Annotated[int, Wire("int32")] = -1
    leader_recovery_state: Annotated[int, Wire("int8", tag=0, tagged="0+")] = 0
    leader_epoch: Annotated[int, Wire("int32")] = -1
    partition_epoch: Annotated[int, Wire("int32")] = -1
    directories: Annotated[list[bytes], Wire("[]uuid", versions="1+")] = field(default_factory=list)
    eligible_leader_replicas: Annotated[
        list[int] | None, Wire("[]int32", versions="2+", nullable="2+", tag=1, tagged="2+")
    ] = None
    last_known_elr: Annotated[
        list[int] | None, Wire("[]int32", versions="2+", nullable="2+", tag=2, tagged="2+")
    ] = None


class ConfigRecord(Message):
    """Record type 4: version 0, flexible."""

    meta: ClassVar[Api] = Api("ConfigRecord", 4, "metadata", valid="0", flexible="0+")

    resource_type: Annotated[int, Wire("int8")] = 0
    resource_name: Annotated[str, Wire("string")] = ""
    name: Annotated[str, Wire("string")] = ""
    value: Annotated[str | None, Wire("string", nullable="0+")] = ""


class PartitionChangeRecord(Message):
    """The changes of a partition: only the fields that are there. Record type 5, versions 0-2.

    ``leader`` -2 means no change, -1 no leader; a new leader bumps the leader epoch, any change the partition
    epoch.
    """

    meta: ClassVar[Api] = Api("PartitionChangeRecord", 5, "metadata", valid="0-2", flexible="0+")

    partition_id: Annotated[int, Wire("int32")] = -1
    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    isr: Annotated[list[int] | None, Wire("[]int32", nullable="0+", tag=0, tagged="0+")] = None
    leader: Annotated[int, Wire("int32", tag=1, tagged="0+")] = -2
    replicas: Annotated[list[int] | None, Wire("[]int32", nullable="0+", tag=2, tagged="0+")] = None
    removing_replicas: Annotated[list[int] | None, Wire("[]int32", nullable="0+", tag=3, tagged="0+")] = None
    adding_replicas: Annotated[list[int] | None, Wire("[]int32", nullable="0+", tag=4, tagged="0+")] = None
    leader_recovery_state: Annotated[int, Wire("int8", tag=5, tagged="0+")] = -1
    directories: Annotated[
        list[bytes] | None, Wire("[]uuid", versions="1+", nullable="1+", tag=8, tagged="1+")
    ] = None
    eligible_leader_replicas: Annotated[
        list[int] | None, Wire("[]int32", versions="2+", nullable="2+", tag=6, tagged="2+")
    ] = None
    last_known_elr: Annotated[
        list[int] | None, Wire("[]int32", versions="2+", nullable="2+", tag=7, tagged="2+")
    ] = None


class FenceBrokerRecord(Message):
    """Record type 7: version 0, flexible."""

    meta: ClassVar[Api] = Api("FenceBrokerRecord", 7, "metadata", valid="0", flexible="0+")

    id: Annotated[int, Wire("int32")] = 0
    epoch: Annotated[int, Wire("int64")] = 0


class UnfenceBrokerRecord(Message):
    """Record type 8: version 0, flexible."""

    meta: ClassVar[Api] = Api("UnfenceBrokerRecord", 8, "metadata", valid="0", flexible="0+")

    id: Annotated[int, Wire("int32")] = 0
    epoch: Annotated[int, Wire("int64")] = 0


class RemoveTopicRecord(Message):
    """Record type 9: version 0, flexible."""

    meta: ClassVar[Api] = Api("RemoveTopicRecord", 9, "metadata", valid="0", flexible="0+")

    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID


class DelegationTokenRecord(Message):
    """Record type 10: version 0, flexible."""

    meta: ClassVar[Api] = Api("DelegationTokenRecord", 10, "metadata", valid="0", flexible="0+")

    owner: Annotated[str, Wire("string")] = ""
    requester: Annotated[str, Wire("string")] = ""
    renewers: Annotated[list[str], Wire("[]string")] = field(default_factory=list)
    issue_timestamp: Annotated[int, Wire("int64")] = 0
    max_timestamp: Annotated[int, Wire("int64")] = 0
    expiration_timestamp: Annotated[int, Wire("int64")] = 0
    token_id: Annotated[str, Wire("string")] = ""


class UserScramCredentialRecord(Message):
    """Record type 11: version 0, flexible."""

    meta: ClassVar[Api] = Api("UserScramCredentialRecord", 11, "metadata", valid="0", flexible="0+")

    name: Annotated[str, Wire("string")] = ""
    mechanism: Annotated[int, Wire("int8")] = 0
    salt: Annotated[bytes, Wire("bytes")] = b""
    stored_key: Annotated[bytes, Wire("bytes")] = b""
    server_key: Annotated[bytes, Wire("bytes")] = b""
    iterations: Annotated[int, Wire("int32")] = 0


class FeatureLevelRecord(Message):
    """Record type 12: version 0, flexible."""

    meta: ClassVar[Api] = Api("FeatureLevelRecord", 12, "metadata", valid="0", flexible="0+")

    name: Annotated[str, Wire("string")] = ""
    feature_level: Annotated[int, Wire("int16")] = 0


class EntityData(Struct):
    """Part of ClientQuotaRecord."""

    entity_type: Annotated[str, Wire("string")] = ""
    entity_name: Annotated[str | None, Wire("string", nullable="0+")] = ""


class ClientQuotaRecord(Message):
    """Record type 14: version 0, flexible."""

    meta: ClassVar[Api] = Api("ClientQuotaRecord", 14, "metadata", valid="0", flexible="0+")

    entity: Annotated[list[EntityData], Wire("[]struct")] = field(default_factory=list)
    key: Annotated[str, Wire("string")] = ""
    value: Annotated[float, Wire("float64")] = 0.0
    remove: Annotated[bool, Wire("bool")] = False


class ProducerIdsRecord(Message):
    """Record type 15: version 0, flexible."""

    meta: ClassVar[Api] = Api("ProducerIdsRecord", 15, "metadata", valid="0", flexible="0+")

    broker_id: Annotated[int, Wire("int32")] = 0
    broker_epoch: Annotated[int, Wire("int64")] = -1
    next_producer_id: Annotated[int, Wire("int64")] = 0


class BrokerRegistrationChangeRecord(Message):
    """Record type 17: versions 0-3, flexible."""

    meta: ClassVar[Api] = Api("BrokerRegistrationChangeRecord", 17, "metadata", valid="0-3", flexible="0+")

    broker_id: Annotated[int, Wire("int32")] = 0
    broker_epoch: Annotated[int, Wire("int64")] = 0
    fenced: Annotated[int, Wire("int8", tag=0, tagged="0+")] = 0
    in_controlled_shutdown: Annotated[int, Wire("int8", versions="1+", tag=1, tagged="1+")] = 0
    log_dirs: Annotated[list[bytes], Wire("[]uuid", versions="2+", tag=2, tagged="2+")] = field(
        default_factory=list
    )
    cordoned_log_dirs: Annotated[
        list[bytes] | None, Wire("[]uuid", versions="3+", nullable="3+", tag=3, tagged="3+")
    ] = None


class AccessControlEntryRecord(Message):
    """Record type 18: version 0, flexible."""

    meta: ClassVar[Api] = Api("AccessControlEntryRecord", 18, "metadata", valid="0", flexible="0+")

    id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    resource_type: Annotated[int, Wire("int8")] = 0
    resource_name: Annotated[str, Wire("string")] = ""
    pattern_type: Annotated[int, Wire("int8")] = 0
    principal: Annotated[str, Wire("string")] = ""
    host: Annotated[str, Wire("string")] = ""
    operation: Annotated[int, Wire("int8")] = 0
    permission_type: Annotated[int, Wire("int8")] = 0


class RemoveAccessControlEntryRecord(Message):
    """Record type 19: version 0, flexible."""

    meta: ClassVar[Api] = Api("RemoveAccessControlEntryRecord", 19, "metadata", valid="0", flexible="0+")

    id: Annotated[bytes, Wire("uuid")] = ZERO_UUID


class NoOpRecord(Message):
    """Record type 20: version 0, flexible."""

    meta: ClassVar[Api] = Api("NoOpRecord", 20, "metadata", valid="0", flexible="0+")


class ZkMigrationStateRecord(Message):
    """Record type 21: version 0, flexible."""

    meta: ClassVar[Api] = Api("ZkMigrationStateRecord", 21, "metadata", valid="0", flexible="0+")

    zk_migration_state: Annotated[int, Wire("int8")] = 0


class RemoveUserScramCredentialRecord(Message):
    """Record type 22: version 0, flexible."""

    meta: ClassVar[Api] = Api("RemoveUserScramCredentialRecord", 22, "metadata", valid="0", flexible="0+")

    name: Annotated[str, Wire("string")] = ""
    mechanism: Annotated[int, Wire("int8")] = 0


class BeginTransactionRecord(Message):
    """Record type 23: version 0, flexible."""

    meta: ClassVar[Api] = Api("BeginTransactionRecord", 23, "metadata", valid="0", flexible="0+")

    name: Annotated[str | None, Wire("string", nullable="0+", tag=0, tagged="0+")] = None


class EndTransactionRecord(Message):
    """Record type 24: version 0, flexible."""

    meta: ClassVar[Api] = Api("EndTransactionRecord", 24, "metadata", valid="0", flexible="0+")


class AbortTransactionRecord(Message):
    """Record type 25: version 0, flexible."""

    meta: ClassVar[Api] = Api("AbortTransactionRecord", 25, "metadata", valid="0", flexible="0+")

    reason: Annotated[str | None, Wire("string", nullable="0+", tag=0, tagged="0+")] = None


class RemoveDelegationTokenRecord(Message):
    """Record type 26: version 0, flexible."""

    meta: ClassVar[Api] = Api("RemoveDelegationTokenRecord", 26, "metadata", valid="0", flexible="0+")

    token_id: Annotated[str, Wire("string")] = ""


class ControllerEndpoint(Struct):
    """Part of RegisterControllerRecord."""

    name: Annotated[str, Wire("string")] = ""
    host: Annotated[str, Wire("string")] = ""
    port: Annotated[int, Wire("uint16")] = 0
    security_protocol: Annotated[int, Wire("int16")] = 0


class ControllerFeature(Struct):
    """Part of RegisterControllerRecord."""

    name: Annotated[str, Wire("string")] = ""
    min_supported_version: Annotated[int, Wire("int16")] = 0
    max_supported_version: Annotated[int, Wire("int16")] = 0


class RegisterControllerRecord(Message):
    """Record type 27: version 0, flexible."""

    meta: ClassVar[Api] = Api("RegisterControllerRecord", 27, "metadata", valid="0", flexible="0+")

    controller_id: Annotated[int, Wire("int32")] = 0
    incarnation_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    zk_migration_ready: Annotated[bool, Wire("bool")] = False
    end_points: Annotated[list[ControllerEndpoint], Wire("[]struct")] = field(default_factory=list)
    features: Annotated[list[ControllerFeature], Wire("[]struct")] = field(default_factory=list)


class ClearElrRecord(Message):
    """Record type 28: version 0, flexible."""

    meta: ClassVar[Api] = Api("ClearElrRecord", 28, "metadata", valid="0", flexible="0+")

    topic_name: Annotated[str, Wire("string")] = ""


RECORD_TYPES: dict[int, type[Message]] = {
    0: RegisterBrokerRecord,
    1: UnregisterBrokerRecord,
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    7: FenceBrokerRecord,
    8: UnfenceBrokerRecord,
    9: RemoveTopicRecord,
    10: DelegationTokenRecord,
    11: UserScramCredentialRecord,
    12: FeatureLevelRecord,
    14: ClientQuotaRecord,
    15: ProducerIdsRecord,
    17: BrokerRegistrationChangeRecord,
    18: AccessControlEntryRecord,
    19: RemoveAccessControlEntryRecord,
    20: NoOpRecord,
    21: ZkMigrationStateRecord,
    22: RemoveUserScramCredentialRecord,
    23: BeginTransactionRecord,
    24: EndTransactionRecord,
    25: AbortTransactionRecord,
    26: RemoveDelegationTokenRecord,
    27: RegisterControllerRecord,
    28: ClearElrRecord,
}
"""The class of each record type."""
