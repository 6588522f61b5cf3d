"""ACLs and the rules of Kafka's StandardAuthorizer. Pure.

An ACL allows or denies one principal, from one host or from all, one operation on the resources of one type with one
name, with one prefix, or with any name. What denies wins. An ACL that allows Read, Write, Delete or Alter allows
Describe, too, and one that allows AlterConfigs allows DescribeConfigs; one that denies denies its operation alone.

:class:`Acls` finds the ACLs on a resource by look-ups, never by a scan: one for each subject (the principal or all,
the host or all), and then one for the name, one for "*" and one for each length of a prefix that this subject has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import AddressValueError, IPv6Address
from itertools import islice
from typing import Any

import msgspec

from blumfeld.wire.acl_operations import OPERATIONS
from blumfeld_security.acls.persistent_map import REMOVED, PersistentMap

RESOURCE_TYPES = {
    "Topic": 2,
    "Group": 3,
    "Cluster": 4,
    "TransactionalId": 5,
    "DelegationToken": 6,
    "User": 7,
}
"""Name → number (``ResourceType``)."""
UNKNOWN, ANY = 0, 1
"""Numbers that each of Kafka's enumerations of ACLs has."""
MATCH, LITERAL, PREFIXED = 2, 3, 4
"""``PatternType``."""
DENY, ALLOW = 2, 3
"""``AclPermissionType``."""
DENIED_MAX = 1_000
"""Patterns, each allowed and denied, that :meth:`Acls.verdict_of_type` looks at, at 2 µs each. If all of so many are
denied the answer is no, where Kafka would look at the others, too."""
FOUND_MAX = 1_024
"""Clients whose subjects are remembered: one that asks for thousands of topics looks them up once."""
ALL = OPERATIONS["All"]
WILDCARD = "*"
EVERYONE = "User:*"
"""The principal of an ACL on everybody, also on principals of other types."""
_EVERY_OPERATION = -1
_DESCRIBE = 1 << OPERATIONS["Describe"]
_DESCRIBE_CONFIGS = 1 << OPERATIONS["DescribeConfigs"]
_IMPLIED = {
    OPERATIONS["Read"]: _DESCRIBE,
    OPERATIONS["Write"]: _DESCRIBE,
    OPERATIONS["Delete"]: _DESCRIBE,
    OPERATIONS["Alter"]: _DESCRIBE,
    OPERATIONS["AlterConfigs"]: _DESCRIBE_CONFIGS,
}
"""Operation → what an ACL that allows it allows, too."""


class Acl(msgspec.Struct, frozen=True, gc=False):
    """One ACL, with the numbers that it has on the wire and in the log."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One ACL of a subject on a pattern."""

    operation: int
    permission_type: int
    id: bytes

    @property
    def allows(self) -> bool:
        """Whether it allows. Any other type of permission denies, as in Kafka."""
        return self.permission_type == ALLOW


class PatternRules(msgspec.Struct, frozen=True, gc=False):
    """The rules of one subject for one pattern of names."""

    entries: tuple[Entry, ...]
    allowed: int
    """Mask of the operations that they allow, with the implied ones."""
    denied: int


def pattern_rules(entries: tuple[Entry, ...]) -> PatternRules:
    """Returns the entries with the masks that follow from them."""
    allowed = denied = 0
    for entry in entries:
        mask = _EVERY_OPERATION if entry.operation == ALL else 1 << max(entry.operation, UNKNOWN)
        if entry.allows:
            allowed |= mask | _IMPLIED.get(entry.operation, 0)
        else:
            denied |= mask
    return PatternRules(entries, allowed, denied)


Pattern = tuple[int, str]
"""The type and the name of a pattern."""
_NO_PATTERNS: PersistentMap[Pattern, bool] = PersistentMap()
SubjectKey = tuple[int, str, str]
"""The type of resource, the principal and the host."""


class Subject:
    """The ACLs of one principal from one host on resources of one type. Never changed."""

    __slots__ = ("allowing", "by_pattern", "prefixes")

    def __init__(
        self,
        by_pattern: PersistentMap[Pattern, PatternRules],
        prefixes: dict[int, int] | None = None,
        allowing: dict[int, PersistentMap[Pattern, bool]] | None = None,
    ) -> None:
        self.by_pattern = by_pattern
        self.prefixes = prefixes or {}
        """Length of a prefix → how many prefixes of this length there are."""
        self.allowing = allowing or {}
        """Operation → the patterns on which an ACL allows just this operation. The patterns are the keys."""

    def updated(self, changes: dict[Pattern, PatternRules]) -> Subject:
        """Returns the subject with these rules. A pattern whose value is ``REMOVED`` goes."""
        prefixes = counted_prefixes(
            self.prefixes,
            (
                (pattern, (rules is not REMOVED) - (self.by_pattern.get(pattern) is not None))
                for pattern, rules in changes.items()
            ),
        )
        by_operation: dict[int, dict[Pattern, bool]] = {}
        for pattern, rules in changes.items():
            for operation in _allowed_by(self.by_pattern.get(pattern)):
                by_operation.setdefault(operation, {})[pattern] = REMOVED
            for operation in _allowed_by(None if rules is REMOVED else rules):
                by_operation.setdefault(operation, {})[pattern] = True
        allowing = dict(self.allowing)
        for operation, patterns in by_operation.items():
            allowing[operation] = allowing.get(operation, PersistentMap()).updated(patterns)
        return Subject(self.by_pattern.updated(changes), prefixes, allowing)


def _allowed_by(rules: PatternRules | None) -> set[int]:
    """Returns the operations that entries allow by their own numbers."""
    return set() if rules is None else {entry.operation for entry in rules.entries if entry.allows}


def patterns_of(name: str, prefixes: Iterable[int]) -> Iterator[Pattern]:
    """Yields the patterns that the name matches: itself, "*", and its prefixes of these lengths."""
    yield LITERAL, name
    if name != WILDCARD:
        yield LITERAL, WILDCARD
    for length in prefixes:
        if length <= len(name):
            yield PREFIXED, name[:length]


def counted_prefixes(prefixes: dict[int, int], changes: Iterable[tuple[Pattern, int]]) -> dict[int, int]:
    """Returns the counts by length after these (pattern, how many came)."""
    counts = prefixes
    for (pattern_type, name), came in changes:
        if pattern_type == PREFIXED and came:
            if counts is prefixes:
                counts = dict(prefixes)
            counts[len(name)] = counts.get(len(name), 0) + came
            if not counts[len(name)]:
                del counts[len(name)]
    return counts


def host_form(host: str) -> str:
    """Returns the host in Java's form of an address, in which Kafka compares it: ``0:0:0:0:0:0:0:1`` for ``::1``.

    A host that is no IPv6 address stays as it is.
    """
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host)
    except AddressValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.partition("%")[0].split(":"))


class Acls:
    """All ACLs, and the verdicts that follow from them. Never changed: :meth:`updated` returns another value."""

    __slots__ = ("_by_id", "_found", "resource_prefixes", "resources", "subjects")

    def __init__(
        self,
        by_id: PersistentMap[int, Acl] | None = None,
        subjects: PersistentMap[SubjectKey, Subject] | None = None,
        resources: PersistentMap[tuple[int, int, str], int] | None = None,
        resource_prefixes: dict[int, dict[int, int]] | None = None,
    ) -> None:
        self._by_id: PersistentMap[int, Acl] = PersistentMap() if by_id is None else by_id
        """By the number of the id: a number has the same hash in every process, so all nodes have the same order."""
        self.subjects: PersistentMap[SubjectKey, Subject] = PersistentMap() if subjects is None else subjects
        self.resources: PersistentMap[tuple[int, int, str], int] = (
            PersistentMap() if resources is None else resources
        )
        """(type of resource, type of pattern, name) → how many ACLs it has."""
        self.resource_prefixes = {} if resource_prefixes is None else resource_prefixes
        """Type of resource → length of a prefix → how many patterns have it."""
        self._found: dict[SubjectKey, list[Subject]] = {}
        """(type of resource, principal, host) → the subjects whose ACLs hold for it. A cache, emptied when full."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __eq__(self, other: object) -> bool:
        """Whether both have the same ACLs under the same ids."""
        if not isinstance(other, Acls):
            return NotImplemented
        return self._by_id is other._by_id or dict(self._by_id.items()) == dict(other._by_id.items())

    __hash__ = None  # type: ignore[assignment]

    def get(self, acl_id: bytes) -> Acl | None:
        """Returns the ACL of this id."""
        return self._by_id.get(_number(acl_id))

    def parts(self) -> Iterator[Iterable[tuple[int, Acl]]]:
        """Yields all ACLs, some hundred at a time, each with the number of its id (:func:`id_of`)."""
        for leaf in self._by_id.leaves():
            yield leaf.items()

    def pieces(self) -> list[Any]:
        """Returns what the value is made of, for a caller that lets it go a few pieces at a time, the last ones first.
        To free 100,000 ACLs at once takes a tenth of a second."""
        pieces: list[Any] = [*self._by_id.leaves(), *self.resources.leaves()]
        subjects = list(self.subjects.leaves())
        for leaf in subjects:
            for subject in leaf.values():
                mappings: list[PersistentMap[Pattern, Any]] = [subject.by_pattern, *subject.allowing.values()]
                for mapping in mappings:
                    pieces += mapping.leaves()
        pieces += subjects
        return pieces

    def verdict(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> bool | None:
        """Returns True if an ACL allows it and none denies it, False if one denies it, ``None`` if none says anything.

        :param host: in the form of :func:`host_form`
        """
        bit = 1 << operation
        allowed: bool | None = None
        for subject in self._subjects_of(principal, host, resource_type):
            get = subject.by_pattern.get
            for pattern in patterns_of(name, subject.prefixes):
                rules = get(pattern)
                if rules is None:
                    continue
                if rules.denied & bit:
                    return False
                if rules.allowed & bit:
                    allowed = True
        return allowed

    def verdict_of_type(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Returns whether ACLs allow it on some resource of this type, as Kafka's ``authorizeByResourceType`` finds it:
        an ACL allows it, and none denies it on all that this one allows. Implied operations don't count. It looks at
        the patterns that are allowed until one isn't denied, at :data:`DENIED_MAX` at most.
        """
        subjects = self._subjects_of(principal, host, resource_type)
        if any(_says(s.by_pattern.get((LITERAL, WILDCARD)), operation, allows=False) for s in subjects):
            return False
        if any(_says(s.by_pattern.get((LITERAL, WILDCARD)), operation, allows=True) for s in subjects):
            return True
        patterns = (
            pattern
            for subject in subjects
            for allowed in (operation, ALL)
            for pattern, _ in subject.allowing.get(allowed, _NO_PATTERNS).items()
        )
        return any(not _is_covered(p, operation, subjects) for p in islice(patterns, DENIED_MAX))

    def has_resource(self, resource_type: int, name: str) -> bool:
        """Returns whether there is an ACL on this resource, for any principal."""
        prefixes = self.resource_prefixes.get(resource_type, {})
        return any(self.resources.get((resource_type, *p)) is not None for p in patterns_of(name, prefixes))

    def ids_of(self, acl: Acl) -> tuple[bytes, ...]:
        """Returns the ids of the ACLs that are equal to this one."""
        subject = self.subjects.get(_subject_key(acl))
        rules = None if subject is None else subject.by_pattern.get((acl.pattern_type, acl.resource_name))
        if rules is None:
            return ()
        return tuple(entry.id for entry in rules.entries if self.get(entry.id) == acl)

    def updated(self, changes: Iterable[tuple[bytes, Acl | None]]) -> Acls:
        """Returns the ACLs after the changes, in their order: (id, the ACL, or ``None`` for one that goes)."""
        by_id = dict(changes)
        step = _Step(self)
        for acl_id, acl in by_id.items():
            old = self.get(acl_id)
            if old is not None:
                step.remove(acl_id, old)
            if acl is not None:
                step.add(acl_id, acl)
        return Acls(
            self._by_id.updated({_number(i): REMOVED if acl is None else acl for i, acl in by_id.items()}),
            self.subjects.updated(step.new_subjects()),
            self.resources.updated(step.new_resources()),
            step.new_resource_prefixes(),
        )

    def _subjects_of(self, principal: str, host: str, resource_type: int) -> list[Subject]:
        asked = (resource_type, principal, host)
        found = self._found.get(asked)
        if found is None:
            subjects = (
                self.subjects.get((resource_type, each, where))
                for each in dict.fromkeys((principal, EVERYONE))
                for where in (host, WILDCARD)
            )
            if len(self._found) >= FOUND_MAX:
                self._found.clear()
            found = self._found[asked] = [subject for subject in subjects if subject is not None]
        return found


class _Step:
    """The changes of one update, collected by subject and by resource, so that each is copied once."""

    def __init__(self, acls: Acls) -> None:
        self._acls = acls
        self._entries: dict[SubjectKey, dict[Pattern, list[Entry]]] = {}
        self._resources: dict[tuple[int, int, str], int] = {}

    def add(self, acl_id: bytes, acl: Acl) -> None:
        self._entries_of(acl).append(Entry(acl.operation, acl.permission_type, acl_id))
        self._count(acl, 1)

    def remove(self, acl_id: bytes, acl: Acl) -> None:
        entries = self._entries_of(acl)
        entries[:] = [entry for entry in entries if entry.id != acl_id]
        self._count(acl, -1)

    def _entries_of(self, acl: Acl) -> list[Entry]:
        key = _subject_key(acl)
        pattern = (acl.pattern_type, acl.resource_name)
        by_pattern = self._entries.setdefault(key, {})
        if pattern not in by_pattern:
            subject = self._acls.subjects.get(key)
            rules = None if subject is None else subject.by_pattern.get(pattern)
            by_pattern[pattern] = [] if rules is None else list(rules.entries)
        return by_pattern[pattern]

    def _count(self, acl: Acl, came: int) -> None:
        key = (acl.resource_type, acl.pattern_type, acl.resource_name)
        if key not in self._resources:
            self._resources[key] = self._acls.resources.get(key) or 0
        self._resources[key] += came

    def new_subjects(self) -> dict[SubjectKey, Subject]:
        subjects: dict[SubjectKey, Subject] = {}
        for key, by_pattern in self._entries.items():
            changes = {
                pattern: pattern_rules(tuple(entries)) if entries else REMOVED
                for pattern, entries in by_pattern.items()
            }
            subject = (self._acls.subjects.get(key) or Subject(PersistentMap())).updated(changes)
            subjects[key] = subject if len(subject.by_pattern) else REMOVED
        return subjects

    def new_resources(self) -> dict[tuple[int, int, str], int]:
        return {key: count or REMOVED for key, count in self._resources.items()}

    def new_resource_prefixes(self) -> dict[int, dict[int, int]]:
        came: dict[int, list[tuple[Pattern, int]]] = {}
        for (resource_type, *pattern), count in self._resources.items():
            was_there = self._acls.resources.get((resource_type, *pattern)) is not None  # type: ignore[arg-type]
            came.setdefault(resource_type, []).append((tuple(pattern), bool(count) - was_there))  # type: ignore[arg-type]
        prefixes = dict(self._acls.resource_prefixes)
        for resource_type, changes in came.items():
            prefixes[resource_type] = counted_prefixes(prefixes.get(resource_type, {}), changes)
        return prefixes


def _number(acl_id: bytes) -> int:
    return int.from_bytes(acl_id, "big")


def id_of(number: int) -> bytes:
    """Returns the id with this number."""
    return number.to_bytes(16, "big")


def _subject_key(acl: Acl) -> SubjectKey:
    return acl.resource_type, acl.principal, host_form(acl.host)


def _says(rules: PatternRules | None, operation: int, *, allows: bool) -> bool:
    """Whether one of the rules allows, or denies, just this operation or all."""
    return rules is not None and any(
        entry.operation in (operation, ALL) and entry.allows is allows for entry in rules.entries
    )


def _is_covered(pattern: Pattern, operation: int, subjects: list[Subject]) -> bool:
    """Whether all that the pattern matches is denied by one ACL: one on the same name, or on a prefix of it."""
    pattern_type, name = pattern
    for subject in subjects:
        if pattern_type == LITERAL and _says(subject.by_pattern.get(pattern), operation, allows=False):
            return True
        for length in subject.prefixes:
            prefix = (PREFIXED, name[:length])
            if length <= len(name) and _says(subject.by_pattern.get(prefix), operation, allows=False):
                return True
    return False


class StandardRules(msgspec.Struct, frozen=True):
    """The verdicts of Kafka's StandardAuthorizer."""

    super_users: frozenset[str] = frozenset()
    """``super.users``: they may do everything."""
    allow_everyone: bool = False
    """``allow.everyone.if.no.acl.found``: everybody may use a resource on which there is no ACL."""

    def authorize(
        self, acls: Acls, principal: str, host: str, operation: str, resource_type: str, name: str
    ) -> bool:
        """Returns whether the principal, from this address, may do it."""
        if principal in self.super_users:
            return True
        kind = RESOURCE_TYPES[resource_type]
        verdict = acls.verdict(principal, host_form(host), OPERATIONS[operation], kind, name)
        if verdict is None:
            return self.allow_everyone and not acls.has_resource(kind, name)
        return verdict

    def authorize_by_type(
        self, acls: Acls, principal: str, host: str, operation: str, resource_type: str
    ) -> bool:
        """Returns whether the principal may do it on some resource of this type. As in Kafka, what may be done on a
        topic that is called "hardcode" may be done on some."""
        if self.authorize(acls, principal, host, operation, resource_type, "hardcode"):
            return True
        return acls.verdict_of_type(
            principal, host_form(host), OPERATIONS[operation], RESOURCE_TYPES[resource_type]
        )
