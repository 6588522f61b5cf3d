"""Records of parts that the core gives no meaning: ACLs, SCRAM, tokens, quotas. Pure.

An image keeps the newest record of each entity, so that a snapshot has it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from blumfeld.wire.messages import metadata_records as records
from blumfeld.wire.schema import Message


class Kept(NamedTuple):
    """A type of record that an image keeps."""

    part: str
    """Records of one part belong together: those that set an entity, and those that remove it."""
    entity: Callable[[Any], Hashable]
    """Returns the entity that a record describes, unique within the part."""
    sets: Callable[[Any], bool]
    """Whether a record sets the entity. The others remove it."""


def _always(_: Any) -> bool:
    return True


def _never(_: Any) -> bool:
    return False


def _quota(record: records.ClientQuotaRecord) -> Hashable:
    entity = sorted((e.entity_type, e.entity_name or "", e.entity_name is None) for e in record.entity)
    return tuple(entity), record.key


KEPT: dict[type[Message], Kept] = {
    records.AccessControlEntryRecord: Kept("acl", lambda r: r.id, _always),
    records.RemoveAccessControlEntryRecord: Kept("acl", lambda r: r.id, _never),
    records.UserScramCredentialRecord: Kept("scram", lambda r: (r.name, r.mechanism), _always),
    records.RemoveUserScramCredentialRecord: Kept("scram", lambda r: (r.name, r.mechanism), _never),
    records.DelegationTokenRecord: Kept("token", lambda r: r.token_id, _always),
    records.RemoveDelegationTokenRecord: Kept("token", lambda r: r.token_id, _never),
    records.ClientQuotaRecord: Kept("quota", _quota, lambda r: not r.remove),
    records.ZkMigrationStateRecord: Kept("zk migration", lambda _: (), _always),
}
