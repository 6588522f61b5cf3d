"""The versions of the nodes that a controller writes, as its session knows them."""

from __future__ import annotations

import msgspec

from blumfeld.wire.messages.metadata_records import AccessControlEntryRecord
from blumfeld_consensus_zk_compat.tree.forms_security import AclResource, acl_resource


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
    acls: dict[AclResource, dict[bytes, AccessControlEntryRecord]] = {}
    """The ACLs of each resource, by id."""
    acl_resources: dict[bytes, AclResource] = {}
    """The resource of each ACL, by id."""

    def set_acl(self, record: AccessControlEntryRecord) -> AclResource:
        """Note an ACL, and return its resource."""
        resource = acl_resource(record)
        self.acls.setdefault(resource, {})[record.id] = record
        self.acl_resources[record.id] = resource
        return resource

    def remove_acl(self, acl_id: bytes) -> AclResource | None:
        """Forget an ACL, and return its resource."""
        resource = self.acl_resources.pop(acl_id, None)
        if resource is not None:
            of_resource = self.acls[resource]
            del of_resource[acl_id]
            if not of_resource:
                del self.acls[resource]
        return resource
