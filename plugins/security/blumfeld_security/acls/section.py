"""The section ``acls`` of the cluster image: its value is an :class:`~blumfeld_security.acls.rules.Acls`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from blumfeld.wire.messages.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from blumfeld.wire.schema import Message
from blumfeld_security.acls.rules import Acl, Acls

SECTION = "acls"


class AclSection:
    """Implements ``spi.image_sections.ImageSection``."""

    name = SECTION
    records: tuple[type[Message], ...] = (AccessControlEntryRecord, RemoveAccessControlEntryRecord)

    def empty(self) -> Acls:
        """No ACLs."""
        return Acls()

    def replay(self, value: Acls, records: Sequence[Message]) -> Acls:
        """The ACLs after these records. A removal of an id that isn't there changes nothing."""
        return value.updated([_change(record) for record in records])


def _change(record: Message) -> tuple[bytes, Acl | None]:
    if isinstance(record, RemoveAccessControlEntryRecord):
        return record.id, None
    entry = cast("AccessControlEntryRecord", record)
    return entry.id, Acl(
        entry.resource_type,
        entry.resource_name,
        entry.pattern_type,
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission_type,
    )


def record_of(acl_id: bytes, acl: Acl) -> AccessControlEntryRecord:
    """Returns the record that sets the ACL."""
    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )
