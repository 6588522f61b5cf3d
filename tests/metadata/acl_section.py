"""A section of the image and a command, as a security plug-in would bring them: ACLs by id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.image_sections import Circumstances, Decided
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from blumfeld.wire.messages.metadata_records import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    TopicRecord,
)
from blumfeld.wire.schema import Message

Acls = dict[bytes, AccessControlEntryRecord]


class AclSection:
    """``acls``: id → entry."""

    name = "acls"
    records: tuple[type[Message], ...] = (AccessControlEntryRecord, RemoveAccessControlEntryRecord)

    def empty(self) -> Acls:
        return {}

    def replay(self, value: Acls, records: Sequence[Message]) -> Acls:
        """A new dict. An entry for ``User:broken`` stands for a record that the plug-in can't read."""
        acls = dict(value)
        for record in records:
            if isinstance(record, RemoveAccessControlEntryRecord):
                acls.pop(record.id, None)
            else:
                entry = cast("AccessControlEntryRecord", record)
                if entry.principal == "User:broken":
                    raise ValueError("no such principal")
                acls[entry.id] = entry
        return acls


class CreateAcls:
    """One entry for each creation. ``User:nobody`` is refused; ``User:foreign`` gets a record of no section."""

    request: type[Message] = CreateAclsRequest

    def decide(self, image: ClusterImage, request: Message, at: Circumstances) -> Decided:
        """The id of an entry is its number."""
        first = len(image.section("acls"))
        records: list[Message] = []
        for number, acl_creation in enumerate(cast("CreateAclsRequest", request).creations):
            if acl_creation.principal == "User:nobody":
                raise BrokerError(ErrorCode.INVALID_REQUEST, "nobody")
            if acl_creation.principal == "User:foreign":
                records.append(TopicRecord(name="t", topic_id=b"t" * 16))
            records.append(entry(first + number, acl_creation.principal))
        return Decided(tuple(records), CreateAclsResponse(results=[AclCreationResult() for _ in records]))


def entry(number: int, principal: str = "User:k") -> AccessControlEntryRecord:
    return AccessControlEntryRecord(id=number.to_bytes(16, "big"), principal=principal)


def removal(number: int) -> RemoveAccessControlEntryRecord:
    return RemoveAccessControlEntryRecord(id=number.to_bytes(16, "big"))


def creation(*principals: str) -> CreateAclsRequest:
    return CreateAclsRequest(creations=[AclCreation(principal=principal) for principal in principals])
