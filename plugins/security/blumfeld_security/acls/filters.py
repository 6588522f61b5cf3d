"""Filters of DescribeAcls and DeleteAcls, and the validation of an ACL that is to be created. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from blumfeld.wire.acl_operations import OPERATIONS
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld_security.acls.rules import (
    ALLOW,
    ANY,
    DENY,
    LITERAL,
    MATCH,
    PREFIXED,
    RESOURCE_TYPES,
    UNKNOWN,
    WILDCARD,
    Acl,
    Acls,
    id_of,
)

CLUSTER = RESOURCE_TYPES["Cluster"]
CLUSTER_NAME = "kafka-cluster"
_RESOURCE_TYPE_MAX = max(RESOURCE_TYPES.values())
_OPERATION_MAX = max(OPERATIONS.values())
_NAMES = {UNKNOWN: "UNKNOWN", ANY: "ANY", MATCH: "MATCH"}


class AclFilter(msgspec.Struct, frozen=True):
    """Conditions on an ACL. A number may be ANY, and a name ``None``: then that field may have any value."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    """ANY takes patterns of this name. MATCH takes all patterns that a resource of this name matches."""
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    def check(self) -> None:
        """Refuse a filter with a value that Kafka doesn't know.

        :raises BrokerError: INVALID_REQUEST
        """
        if not (
            UNKNOWN < self.resource_type <= _RESOURCE_TYPE_MAX and UNKNOWN < self.pattern_type <= PREFIXED
        ):
            raise BrokerError(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
        if not (UNKNOWN < self.operation <= _OPERATION_MAX and UNKNOWN < self.permission_type <= ALLOW):
            raise BrokerError(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")

    def exact(self) -> Acl | None:
        """Returns the only ACL that the filter takes; ``None`` if it may take several."""
        names = (self.resource_name, self.principal, self.host)
        if ANY in (self.resource_type, self.operation, self.permission_type) or None in names:
            return None
        if self.pattern_type not in (LITERAL, PREFIXED):
            return None
        return Acl(
            self.resource_type,
            self.resource_name or "",
            self.pattern_type,
            self.principal or "",
            self.host or "",
            self.operation,
            self.permission_type,
        )

    def takes(self, acl: Acl) -> bool:
        """Whether the ACL is one that the filter asks for."""
        return (
            (self.principal is None or self.principal == acl.principal)
            and (self.host is None or self.host == acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission_type in (ANY, acl.permission_type)
            and self.resource_type in (ANY, acl.resource_type)
            and self._takes_pattern(acl)
        )

    def _takes_pattern(self, acl: Acl) -> bool:
        if self.pattern_type not in (ANY, MATCH, acl.pattern_type):
            return False
        if self.resource_name is None or self.resource_name == acl.resource_name:
            return True
        if self.pattern_type != MATCH:
            return False
        if acl.pattern_type == PREFIXED:
            return self.resource_name.startswith(acl.resource_name)
        return acl.resource_name == WILDCARD

    def found(self, acls: Acls) -> Iterator[list[tuple[bytes, Acl]]]:
        """Yields the ACLs that the filter takes, in parts. Each part takes a fraction of a millisecond."""
        exact = self.exact()
        if exact is not None:
            yield [(acl_id, exact) for acl_id in acls.ids_of(exact)]
            return
        for part in acls.parts():
            yield [(id_of(number), acl) for number, acl in part if self.takes(acl)]


def check_new(acl: Acl) -> None:
    """Refuse an ACL that Kafka refuses to create, in its words.

    :raises BrokerError: INVALID_REQUEST
    """
    if acl.resource_type == CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        raise _invalid("Invalid empty resource name")
    if not ANY < acl.resource_type <= _RESOURCE_TYPE_MAX:
        raise _invalid(f"Invalid resourceType {_name(acl.resource_type)}")
    if acl.pattern_type not in (LITERAL, PREFIXED):
        raise _invalid(f"Invalid patternType {_name(acl.pattern_type)}")
    if not ANY < acl.operation <= _OPERATION_MAX:
        raise _invalid(f"Invalid operation {_name(acl.operation)}")
    if acl.permission_type not in (DENY, ALLOW):
        raise _invalid(f"Invalid permissionType {_name(acl.permission_type)}")
    if ":" not in acl.principal:
        raise _invalid(
            f"Could not parse principal from `{acl.principal}` "
            "(no colon is present separating the principal type from the principal name)"
        )


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, message)


def _name(value: int) -> str:
    return _NAMES.get(value, "UNKNOWN")
