"""CreateAcls and DeleteAcls, as commands of the controller. Pure."""

from __future__ import annotations

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
from blumfeld.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from blumfeld.wire.messages.describe_acls import DescribeAclsRequest
from blumfeld.wire.messages.metadata_records import RemoveAccessControlEntryRecord
from blumfeld.wire.schema import Message
from blumfeld_security.acls.filters import AclFilter, check_new
from blumfeld_security.acls.rules import Acl, Acls
from blumfeld_security.acls.section import SECTION, record_of

REMOVED_MAX = 10_000
"""ACLs that a request may delete, as in Kafka: more would hold the controller's loop for longer than 15 ms."""


class CreateAcls:
    """Creates each ACL that isn't there yet. One that is there is a success, as in Kafka."""

    request: type[Message] = CreateAclsRequest

    def decide(self, image: ClusterImage, request: Message, at: Circumstances) -> Decided:
        """An answer for each ACL: INVALID_REQUEST, or none."""
        acls: Acls = image.section(SECTION)
        new: dict[Acl, None] = {}
        results = []
        for asked in cast("CreateAclsRequest", request).creations:
            acl = acl_of(asked)
            try:
                check_new(acl)
            except BrokerError as error:
                results.append(AclCreationResult(error_code=error.code, error_message=error.message))
                continue
            results.append(AclCreationResult(error_message=None))
            if not acls.ids_of(acl):
                new[acl] = None
        records = tuple(record_of(_new_id(acls, at), acl) for acl in new)
        return Decided(records, CreateAclsResponse(results=results))


def _new_id(acls: Acls, at: Circumstances) -> bytes:
    """Returns a random UUID (version 4) that no ACL has."""
    while True:
        random = bytearray(at.new_secret(16))
        random[6] = random[6] & 0x0F | 0x40
        random[8] = random[8] & 0x3F | 0x80
        acl_id = bytes(random)
        if acls.get(acl_id) is None:
            return acl_id


def acl_of(asked: AclCreation) -> Acl:
    """Returns the ACL that a request asks for."""
    return Acl(
        asked.resource_type,
        asked.resource_name,
        asked.resource_pattern_type,
        asked.principal,
        asked.host,
        asked.operation,
        asked.permission_type,
    )


class DeleteAcls:
    """Deletes the ACLs that each filter takes. One that several filters take is in the answer to each."""

    request: type[Message] = DeleteAclsRequest

    def decide(self, image: ClusterImage, request: Message, at: Circumstances) -> Decided:
        """An answer for each filter: INVALID_REQUEST, or the ACLs that are deleted.

        :raises BrokerError: INVALID_REQUEST: they are too many
        """
        acls: Acls = image.section(SECTION)
        gone: dict[bytes, None] = {}
        results = []
        for asked in cast("DeleteAclsRequest", request).filters:
            acl_filter = filter_of(asked)
            try:
                acl_filter.check()
            except BrokerError as error:
                results.append(DeleteAclsFilterResult(error_code=error.code, error_message=error.message))
                continue
            found: list[tuple[bytes, Acl]] = []
            for part in acl_filter.found(acls):
                found += part
                if len(found) > REMOVED_MAX:
                    raise _too_many()
            gone.update((acl_id, None) for acl_id, _ in found)
            if len(gone) > REMOVED_MAX:
                raise _too_many()
            matching = [_matching(acl) for _, acl in found]
            results.append(DeleteAclsFilterResult(error_message=None, matching_acls=matching))
        records = tuple(RemoveAccessControlEntryRecord(id=acl_id) for acl_id in gone)
        return Decided(records, DeleteAclsResponse(filter_results=results))


def _too_many() -> BrokerError:
    text = f"Cannot remove more than {REMOVED_MAX} acls in a single delete operation."
    return BrokerError(ErrorCode.INVALID_REQUEST, text)


def filter_of(asked: DeleteAclsFilter | DescribeAclsRequest) -> AclFilter:
    """Returns a filter of a request."""
    return AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )
