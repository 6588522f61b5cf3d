"""The versions of the nodes that a controller writes, as its session knows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from blumfeld.wire.messages.metadata_records import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.tree.forms_configs import ENTITY_TYPES, QUOTAS, SCRAM_MECHANISMS
from blumfeld_consensus_zk_compat.tree.forms_security import AclResource, acl_resource
from blumfeld_consensus_zk_compat.tree.paths import CONFIG


class KnownAcls(msgspec.Struct):
    """The ACLs of an image, by resource."""

    of_resource: dict[AclResource, dict[bytes, AccessControlEntryRecord]] = {}
    """The ACLs of each resource, by id."""
    resources: dict[bytes, AclResource] = {}
    """The resource of each ACL, by id."""

    def set(self, record: AccessControlEntryRecord) -> AclResource:
        """Note an ACL, and return its resource."""
        resource = acl_resource(record)
        self.of_resource.setdefault(resource, {})[record.id] = record
        self.resources[record.id] = resource
        return resource

    def remove(self, acl_id: bytes) -> AclResource | None:
        """Forget an ACL, and return its resource."""
        resource = self.resources.pop(acl_id, None)
        if resource is not None:
            of_resource = self.of_resource[resource]
            del of_resource[acl_id]
            if not of_resource:
                del self.of_resource[resource]
        return resource

    def note(self, records: Iterable[Message]) -> None:
        """Keep up with records that an image was given."""
        for record in records:
            if isinstance(record, AccessControlEntryRecord):
                self.set(record)
            elif isinstance(record, RemoveAccessControlEntryRecord):
                self.remove(record.id)


class TreeVersions(msgspec.Struct, kw_only=True):
    """The nodes that are there. The version of a partition's state isn't here: it is the partition's epoch.

    :func:`~.loading.loaded` makes it, and a :class:`~.writing.TreeWriter` keeps it up with what it writes.
    """

    controller_epoch: int = -1
    """The version of ``/controller_epoch``; -1 if the node isn't there."""
    topics: dict[str, int] = {}
    """Topic → version of its node."""
    nodes: dict[str, int] = {}
    """Path → version of each other node that was read, outside of the topics."""
    without_partitions: set[str] = set()
    """Topics without the node above their partitions."""
    without_state: set[tuple[str, int]] = set()
    """Partitions that have a node, but no state below it."""
    others: dict[str, dict[str, str]] = {}
    """Path of a user, client or address → values that are neither quota nor SCRAM credential. They are kept."""
    acls: KnownAcls = msgspec.field(default_factory=KnownAcls)

    def set_others(self, path: str, values: Mapping[str, str], *, are_taken: bool = True) -> None:
        """Note what else a user, client or address has in its node.

        :param are_taken: ``False``: the image has none of them, because one can't be read. The next write keeps all
        """
        kind = path.removeprefix(f"{CONFIG}/").partition("/")[0]
        others = {
            key: value
            for key, value in values.items()
            if not are_taken or (key not in QUOTAS and key not in SCRAM_MECHANISMS)
        }
        self.others.pop(path, None)
        if others and kind in ENTITY_TYPES:
            self.others[path] = others
