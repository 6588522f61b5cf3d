"""StandardAuthorizer's rules, written as one scan over all ACLs: what the index must agree with."""

from __future__ import annotations

from collections.abc import Iterable

from blumfeld.wire.acl_operations import OPERATIONS
from blumfeld_security.acls.rules import (
    ALL,
    ALLOW,
    EVERYONE,
    LITERAL,
    PREFIXED,
    RESOURCE_TYPES,
    WILDCARD,
    Acl,
)

DESCRIBES = ("Describe", "Read", "Write", "Delete", "Alter")
DESCRIBES_CONFIGS = ("DescribeConfigs", "AlterConfigs")


def is_on(acl: Acl, resource_type: int, name: str) -> bool:
    if acl.resource_type != resource_type:
        return False
    if acl.pattern_type == LITERAL:
        return acl.resource_name in (name, WILDCARD)
    return acl.pattern_type == PREFIXED and name.startswith(acl.resource_name)


def is_for(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, EVERYONE) and acl.host in (host, WILDCARD)


def covers(acl: Acl, operation: str) -> bool:
    names = {"Describe": DESCRIBES, "DescribeConfigs": DESCRIBES_CONFIGS}.get(operation, (operation,))
    if acl.permission_type != ALLOW:
        names = (operation,)
    return acl.operation == ALL or acl.operation in [OPERATIONS[name] for name in names]


def authorize(
    acls: Iterable[Acl],
    super_users: Iterable[str],
    allow_everyone: bool,
    principal: str,
    host: str,
    operation: str,
    resource_type: str,
    name: str,
) -> bool:
    if principal in super_users:
        return True
    on = [acl for acl in acls if is_on(acl, RESOURCE_TYPES[resource_type], name)]
    if not on:
        return allow_everyone
    said = [acl for acl in on if is_for(acl, principal, host) and covers(acl, operation)]
    return bool(said) and all(acl.permission_type == ALLOW for acl in said)


def authorize_by_type(
    acls: Iterable[Acl], principal: str, host: str, operation: str, resource_type: str
) -> bool:
    """Only the part on ACLs of ``Authorizer.authorizeByResourceType``."""
    said = [
        acl
        for acl in acls
        if acl.resource_type == RESOURCE_TYPES[resource_type]
        and is_for(acl, principal, host)
        and acl.operation in (OPERATIONS[operation], ALL)
    ]
    denied = {(acl.pattern_type, acl.resource_name) for acl in said if acl.permission_type != ALLOW}
    allowed = {(acl.pattern_type, acl.resource_name) for acl in said if acl.permission_type == ALLOW}
    if (LITERAL, WILDCARD) in denied:
        return False
    if (LITERAL, WILDCARD) in allowed:
        return True
    for pattern_type, name in allowed:
        if pattern_type == LITERAL and (LITERAL, name) in denied:
            continue
        if not any((PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1)):
            return True
    return False
