"""Records that any node writes, controller or not, and the mirror of a migration for all: the znode that each belongs
to, what the znode holds with them, and the notification for all brokers. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

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


class NodeChange(msgspec.Struct, frozen=True):
    """The records of one znode."""

    path: str
    records: list[Message] = msgspec.field(default_factory=list)

    def merged(self, data: bytes | None) -> bytes | None:
        """Returns what the znode holds with the records; ``None``: it goes.

        :param data: as it was read; ``None``: it isn't there
        :raises TreeError: it can't be read
        :raises NoFormError: Kafka 3.9 has no form for a record
        """
        if self.path.startswith(f"{paths.CONFIG}/"):
            return merged_entity(self.records, {} if data is None else decode_config(self.path, data))
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
        told = notification(self.path)
        if data is not None:
            write = Create(self.path, data) if version is None else Set(self.path, data, version)
            return write, told
        return (told,) if version is None else (Delete(self.path, version), told)

    def _acls(self, entries: dict[bytes, AccessControlEntryRecord]) -> bytes | None:
        for record in self.records:
            if isinstance(record, AccessControlEntryRecord):
                entries[record.id] = record
            elif isinstance(record, RemoveAccessControlEntryRecord):
                entries.pop(record.id, None)
        return encode_acls(entries.values()) if entries else None


def merged_entity(records: Iterable[Message], before: Mapping[str, str]) -> bytes:
    """Returns what the znode of an entity holds with these configurations, quotas and credentials.

    :param before: the values that it had
    """
    values = dict(before)
    for record in records:
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
        path = node_path(record, acls)
        if path is not None:
            changes.setdefault(path, NodeChange(path)).records.append(record)
    return list(changes.values())


def node_path(record: Message, acls: KnownAcls) -> str | None:
    """Returns the znode that a record belongs to; ``None``: it removes an ACL that isn't there.

    :raises NoFormError: a tree has no place for it
    """
    match record:
        case ConfigRecord():
            return paths.config(config_entity(record.resource_type, record.resource_name))
        case ClientQuotaRecord():
            return paths.config(quota_entity(record.entity))
        case UserScramCredentialRecord() | RemoveUserScramCredentialRecord():
            scram_mechanism(record.mechanism)
            return paths.config(f"users/{paths.sanitized(record.name)}")
        case AccessControlEntryRecord():
            return acl_path(acl_resource(record))
        case RemoveAccessControlEntryRecord():
            resource = acls.resources.get(record.id)
            return None if resource is None else acl_path(resource)  # gone meanwhile
        case DelegationTokenRecord() | RemoveDelegationTokenRecord():
            return paths.token(record.token_id)
    raise NoFormError(f"a ZooKeeper has no place for {type(record).__name__}")


def notification(path: str) -> Create:
    """Returns the write that tells all brokers of a change of this znode."""
    if path.startswith(f"{paths.CONFIG}/"):
        entity = path.removeprefix(f"{paths.CONFIG}/")
        at, data = f"{paths.CONFIG_CHANGES}/config_change_", encode_config_change(entity)
    elif path.startswith(f"{paths.TOKENS}/"):
        at, data = f"{paths.TOKEN_CHANGES}/token_change_", path.removeprefix(f"{paths.TOKENS}/").encode()
    else:
        at, data = encode_acl_change(acl_resource_at(path))
    return Create(at, data, sequential=True)
