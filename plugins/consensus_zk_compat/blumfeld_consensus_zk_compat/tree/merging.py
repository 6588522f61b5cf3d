"""Records that any node may write, controller or not: the znode that each belongs to, what the znode holds with them,
and the notification for all brokers. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from blumfeld.spi.zookeeper import Create, Delete, Operation, Set
from blumfeld.wire.messages.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms import NoFormError
from blumfeld_consensus_zk_compat.tree.forms_configs import (
    config_entity,
    decode_config,
    encode_config,
    encode_config_change,
    encode_scram,
    quota_entity,
    quota_text,
    scram_mechanism,
)
from blumfeld_consensus_zk_compat.tree.forms_security import (
    AclResource,
    acl_id,
    acl_path,
    acl_resource,
    acl_resource_at,
    decode_acls,
    encode_acl_change,
    encode_acls,
    encode_token,
)
from blumfeld_consensus_zk_compat.tree.versions import KnownAcls

CONFIG_CHANGE = f"{paths.CONFIG_CHANGES}/config_change_"
TOKEN_CHANGE = f"{paths.TOKEN_CHANGES}/token_change_"


class NodeChange(msgspec.Struct, frozen=True):
    """The records of one znode."""

    path: str
    notification: Create
    records: list[Message] = msgspec.field(default_factory=list)

    def merged(self, data: bytes | None) -> bytes | None:
        """Returns what the znode holds with the records; ``None``: it goes.

        :param data: as it was read; ``None``: it isn't there
        :raises TreeError: it can't be read
        :raises NoFormError: Kafka 3.9 has no form for a record
        """
        if self.path.startswith(f"{paths.CONFIG}/"):
            return self._entity({} if data is None else dict(decode_config(self.path, data)))
        if self.path.startswith(f"{paths.TOKENS}/"):
            token = self.records[-1]
            return encode_token(token) if isinstance(token, DelegationTokenRecord) else None
        read = [] if data is None else decode_acls(self.path, data, acl_resource_at(self.path))
        return self._acls({entry.id: entry for entry in read})

    def operations(self, data: bytes | None, version: int | None) -> tuple[Operation, ...]:
        """Write ``data``, and tell all brokers. ``None``: there is nothing to hold.

        :param version: of the znode as it was read; ``None``: it has none. Somebody else's write in between fails this
            one
        """
        if data is not None:
            write = Create(self.path, data) if version is None else Set(self.path, data, version)
            return write, self.notification
        return (self.notification,) if version is None else (Delete(self.path, version), self.notification)

    def _entity(self, values: dict[str, str]) -> bytes:
        for record in self.records:
            match record:
                case ConfigRecord():
                    key, value = record.name, record.value
                case ClientQuotaRecord():
                    key = record.key
                    value = None if record.remove else quota_text(key, record.value)
                case UserScramCredentialRecord():
                    key, value = scram_mechanism(record.mechanism), encode_scram(record)
                case RemoveUserScramCredentialRecord():
                    key, value = scram_mechanism(record.mechanism), None
                case _:
                    raise AssertionError(record)
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
        return encode_config(values)

    def _acls(self, entries: dict[bytes, AccessControlEntryRecord]) -> bytes | None:
        for record in self.records:
            if isinstance(record, AccessControlEntryRecord):
                entries[record.id] = record
            elif isinstance(record, RemoveAccessControlEntryRecord):
                entries.pop(record.id, None)
        return encode_acls(entries.values()) if entries else None


def node_changes(records: Sequence[Message], acls: KnownAcls) -> list[NodeChange]:
    """Returns the znodes that records change, each with its records in their order. ACLs get the ids that every node
    makes for them: a tree keeps none.

    :param acls: of the image that the records were decided on
    :raises NoFormError: a tree has no place for one of them
    """
    changes: dict[str, NodeChange] = {}
    for record in records:
        if isinstance(record, AccessControlEntryRecord):
            record.id = acl_id(record)
        change = _place(record, acls)
        if change is not None:
            changes.setdefault(change.path, change).records.append(record)
    return list(changes.values())


def _place(record: Message, acls: KnownAcls) -> NodeChange | None:
    match record:
        case ConfigRecord():
            return entity_change(config_entity(record.resource_type, record.resource_name))
        case ClientQuotaRecord():
            return entity_change(quota_entity(record.entity))
        case UserScramCredentialRecord() | RemoveUserScramCredentialRecord():
            return entity_change(f"users/{paths.sanitized(record.name)}")
        case AccessControlEntryRecord():
            return _of_acls(acl_resource(record))
        case RemoveAccessControlEntryRecord():
            resource = acls.resources.get(record.id)
            return None if resource is None else _of_acls(resource)  # gone meanwhile
        case DelegationTokenRecord() | RemoveDelegationTokenRecord():
            told = Create(TOKEN_CHANGE, record.token_id.encode(), sequential=True)
            return NodeChange(paths.token(record.token_id), told)
    raise NoFormError(f"a ZooKeeper has no place for {type(record).__name__}")


def entity_change(entity: str) -> NodeChange:
    """Returns a change, so far without records, of an entity's configuration, such as ``topics/orders``."""
    told = Create(CONFIG_CHANGE, encode_config_change(entity), sequential=True)
    return NodeChange(paths.config(entity), told)


def _of_acls(resource: AclResource) -> NodeChange:
    path, data = encode_acl_change(resource)
    return NodeChange(acl_path(resource), Create(path, data, sequential=True))
