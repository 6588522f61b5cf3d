"""Forms of ACLs and delegation tokens, and the notifications of their changes. Pure. See :mod:`.forms`."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

import msgspec

from blumfeld.wire.acl_operations import OPERATIONS
from blumfeld.wire.messages.metadata_records import AccessControlEntryRecord, DelegationTokenRecord
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms import NoFormError, TreeError, reader, written

RESOURCE_TYPES = {
    "Topic": 2,
    "Group": 3,
    "Cluster": 4,
    "TransactionalId": 5,
    "DelegationToken": 6,
    "User": 7,
}
PERMISSIONS = {"Deny": 2, "Allow": 3}
LITERAL, PREFIXED = 3, 4
"""Pattern types."""


class AclResource(NamedTuple):
    """The resource that an ACL is about. Each has a node."""

    resource_type: int
    name: str
    pattern_type: int


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    principal: str
    permissionType: str  # noqa: N815 - Kafka's name
    host: str
    operation: str


class _AclForm(msgspec.Struct, frozen=True, kw_only=True):
    acls: list[_Entry]
    version: int = 1


class _ExtendedChangeForm(msgspec.Struct, frozen=True, kw_only=True):
    version: int = 1
    resourceType: str  # noqa: N815 - Kafka's name
    name: str
    patternType: str  # noqa: N815 - Kafka's name


_read_acls = reader(_AclForm, "ACLs in version 1: principal, permissionType, host and operation of each")


def acl_resource(record: AccessControlEntryRecord) -> AclResource:
    """The resource of an ACL."""
    return AclResource(record.resource_type, record.resource_name, record.pattern_type)


def acl_path(resource: AclResource) -> str:
    """The node with the ACLs of a resource.

    :raises NoFormError: a tree has no such resources
    """
    above = {LITERAL: paths.ACLS, PREFIXED: paths.PREFIXED_ACLS}.get(resource.pattern_type)
    kind = _name(RESOURCE_TYPES, resource.resource_type)
    if above is None or kind is None:
        raise NoFormError(
            f"{resource}; allowed: pattern types {LITERAL} and {PREFIXED}, resource types {RESOURCE_TYPES}"
        )
    return f"{above}/{kind}/{resource.name}"


def acl_resource_at(path: str) -> AclResource:
    """The resource whose ACLs are in a node.

    :raises TreeError: Kafka has no such resources
    """
    prefixed = path.startswith(f"{paths.PREFIXED_ACLS}/")
    above = paths.PREFIXED_ACLS if prefixed else paths.ACLS
    kind, _, name = path.removeprefix(f"{above}/").partition("/")
    if kind not in RESOURCE_TYPES:
        raise TreeError(f"{above}/{kind}", kind, f"one of {', '.join(RESOURCE_TYPES)}")
    return AclResource(RESOURCE_TYPES[kind], name, PREFIXED if prefixed else LITERAL)


def decode_acls(path: str, data: bytes, resource: AclResource) -> list[AccessControlEntryRecord]:
    """Read the ACLs of a resource. A tree gives them no ids: theirs are a hash of what they say.

    :raises TreeError: they can't be read
    """
    form = _read_acls(path, data)
    if form.version != 1:
        raise TreeError(path, data, "ACLs in version 1")
    records = []
    for entry in form.acls:
        record = AccessControlEntryRecord(
            resource_type=resource.resource_type,
            resource_name=resource.name,
            pattern_type=resource.pattern_type,
            principal=entry.principal,
            host=entry.host,
            operation=_number(path, OPERATIONS, entry.operation),
            permission_type=_number(path, PERMISSIONS, entry.permissionType),
        )
        record.id = acl_id(record)
        records.append(record)
    return records


def acl_id(record: AccessControlEntryRecord) -> bytes:
    """The id of an ACL that was read from a tree: the same for equal ACLs, at each broker."""
    said = (
        *acl_resource(record),
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )
    return sha256(msgspec.json.encode(said)).digest()[:16]


def encode_acls(records: Iterable[AccessControlEntryRecord]) -> bytes:
    """Write the ACLs of one resource.

    :raises NoFormError: Kafka 3.9 has no such operation or permission
    """
    entries = []
    for record in records:
        operation = _name(OPERATIONS, record.operation)
        permission = _name(PERMISSIONS, record.permission_type)
        if operation is None or permission is None:
            raise NoFormError(
                f"operation {record.operation}, permission {record.permission_type}; allowed: operations {OPERATIONS}, "
                f"permissions {PERMISSIONS}"
            )
        entries.append(
            _Entry(
                principal=record.principal, permissionType=permission, host=record.host, operation=operation
            )
        )
    return written(_AclForm(acls=entries))


def encode_acl_change(resource: AclResource) -> tuple[str, bytes]:
    """The notification that a resource's ACLs have changed: the path without its number, and the data."""
    kind = _upper(_name(RESOURCE_TYPES, resource.resource_type) or "")
    if resource.pattern_type == LITERAL:
        return f"{paths.ACL_CHANGES}/acl_changes_", f"{kind}:{resource.name}".encode()
    form = _ExtendedChangeForm(resourceType=kind, name=resource.name, patternType="PREFIXED")
    return f"{paths.EXTENDED_ACL_CHANGES}/acl_changes_", written(form)


_read_extended_change = reader(
    _ExtendedChangeForm, "resourceType, name and patternType PREFIXED in version 1"
)


def decode_acl_change(path: str, data: bytes) -> AclResource:
    """Read a node of ``/kafka-acl-changes`` or ``/kafka-acl-extended-changes``: the resource whose ACLs have changed.

    :raises TreeError: it can't be read
    """
    if path.startswith(paths.EXTENDED_ACL_CHANGES + "/"):
        form = _read_extended_change(path, data)
        if form.version != 1 or form.patternType != "PREFIXED":
            raise TreeError(path, data, "patternType PREFIXED in version 1")
        return AclResource(_number(path, RESOURCE_TYPES, form.resourceType), form.name, PREFIXED)
    kind, separator, name = data.decode(errors="replace").partition(":")
    if not separator:
        raise TreeError(path, data, "RESOURCE_TYPE:NAME")
    return AclResource(_number(path, RESOURCE_TYPES, kind), name, LITERAL)


class _TokenForm(msgspec.Struct, frozen=True, kw_only=True):
    issueTimestamp: int  # noqa: N815 - Kafka's name
    renewers: list[str]
    tokenRequester: str | None = None  # noqa: N815 - Kafka's name
    tokenId: str  # noqa: N815 - Kafka's name
    owner: str
    expiryTimestamp: int = -1  # noqa: N815 - Kafka's name
    maxTimestamp: int  # noqa: N815 - Kafka's name
    version: int = 3


_read_token = reader(_TokenForm, "a delegation token in version 1 to 3")


def decode_token(path: str, data: bytes) -> DelegationTokenRecord:
    """Read a delegation token of version 1 to 3. Before version 3 it has no requester: that is its owner.

    :raises TreeError: it can't be read
    """
    form = _read_token(path, data)
    if not 1 <= form.version <= 3:
        raise TreeError(path, data, "a delegation token in version 1 to 3")
    return DelegationTokenRecord(
        owner=_principal(form.owner),
        requester=_principal(form.tokenRequester or form.owner),
        renewers=[_principal(renewer) for renewer in form.renewers],
        issue_timestamp=form.issueTimestamp,
        max_timestamp=form.maxTimestamp,
        expiration_timestamp=form.expiryTimestamp,
        token_id=form.tokenId,
    )


def encode_token(record: DelegationTokenRecord) -> bytes:
    """Write a delegation token in version 3. Its HMAC isn't in the tree: brokers make it of the id and their secret."""
    return written(
        _TokenForm(
            issueTimestamp=record.issue_timestamp,
            renewers=[paths.sanitized(renewer) for renewer in record.renewers],
            tokenRequester=paths.sanitized(record.requester),
            tokenId=record.token_id,
            owner=paths.sanitized(record.owner),
            expiryTimestamp=record.expiration_timestamp,
            maxTimestamp=record.max_timestamp,
        )
    )


def _principal(text: str) -> str:
    return paths.desanitized(text) or text


def _number(path: str, numbers: dict[str, int], name: str) -> int:
    """Kafka takes the name in any case, with or without underscores."""
    plain = name.replace("_", "").lower()
    for known, number in numbers.items():
        if known.lower() == plain:
            return number
    raise TreeError(path, name, f"one of {', '.join(numbers)}")


def _name(numbers: dict[str, int], number: int) -> str | None:
    return next((name for name, known in numbers.items() if known == number), None)


def _upper(name: str) -> str:
    """``TransactionalId`` as ``TRANSACTIONAL_ID``."""
    return "".join(f"_{c}" if c.isupper() and at else c for at, c in enumerate(name)).upper()
