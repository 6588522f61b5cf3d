"""The rights and credentials as the metadata log has them: a second implementation, as simple as it can be. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, TypeVar

from blumfeld.metadata.image.checkpoint import iter_records
from blumfeld.wire.acl_operations import OPERATIONS
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.messages.metadata_records import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from blumfeld.wire.schema import Message

K = TypeVar("K")
V = TypeVar("V")

TOPIC, GROUP, CLUSTER = 2, 3, 4
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
CLUSTER_NAME = "kafka-cluster"
ALL = OPERATIONS["All"]
READ, WRITE, DELETE = OPERATIONS["Read"], OPERATIONS["Write"], OPERATIONS["Delete"]
ALTER, DESCRIBE = OPERATIONS["Alter"], OPERATIONS["Describe"]
IMPLYING: Mapping[int, tuple[int, ...]] = {DESCRIBE: (READ, WRITE, DELETE, ALTER)}
"""Operation → operations that allow it, too."""


class Rule(NamedTuple):
    """An ACL, with the numbers that it has on the wire."""

    resource_type: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int


class Wanted(NamedTuple):
    """A principal, from an address, wants to do something to a resource."""

    principal: str
    host: str
    operation: int
    resource_type: int
    name: str


class State(NamedTuple):
    """All ACLs, credentials and delegation tokens behind one record."""

    rules: Mapping[bytes, Rule]
    """Id → ACL."""
    keys: Mapping[str, bytes]
    """User of SCRAM-SHA-256 → the key that is stored for the password."""
    tokens: Mapping[str, str]
    """Id → owner."""

    def equals(self, other: State) -> bool:
        """Whether both have the same ACLs, under whatever ids, and the same credentials and tokens."""
        return sorted(self.rules.values()) == sorted(other.rules.values()) and self[1:] == other[1:]


NONE = State({}, {}, {})


def allows(rules: Collection[Rule], wanted: Wanted) -> bool:
    """Whether the ACLs allow it. A super user needs none of them."""
    matching = [rule for rule in rules if _matches(rule, wanted)]
    operations = (ALL, wanted.operation)
    if any(rule.permission == DENY and rule.operation in operations for rule in matching):
        return False
    implying = IMPLYING.get(wanted.operation, ())
    return any(rule.permission == ALLOW and rule.operation in (*operations, *implying) for rule in matching)


def _matches(rule: Rule, wanted: Wanted) -> bool:
    if rule.resource_type != wanted.resource_type:
        return False
    if rule.pattern == PREFIXED:
        is_named = wanted.name.startswith(rule.name)
    else:
        is_named = rule.name in ("*", wanted.name)
    return is_named and rule.principal in ("User:*", wanted.principal) and rule.host in ("*", wanted.host)


class Rights:
    """The states of the rights, by the offset of the metadata log. A new cluster has none."""

    def __init__(self) -> None:
        self.end_offset = 0
        """Everything below was taken."""
        self.has_gap = False
        """Records were deleted before anybody saw them: nothing behind them is known."""
        self._offsets = [-1]
        self._states = [NONE]
        """The state behind each of these offsets."""

    def take(self, base_offset: int, data: bytes) -> None:
        """Take the next committed batch of the log."""
        batch = RecordBatch(memoryview(bytearray(data)))
        self.has_gap |= base_offset != self.end_offset > 0  # the first ones may be gone before anybody looks
        self.end_offset = batch.next_offset
        if batch.is_control:
            return
        before = state = self._states[-1]
        for record in iter_records(batch):
            state = _after(state, record)
        if state is not before:
            self._offsets.append(batch.next_offset - 1)
            self._states.append(state)

    @property
    def newest(self) -> State:
        """The state behind all that was taken."""
        return self._states[-1]

    def between(self, first_offset: int, last_offset: int) -> list[State]:
        """Return the states that a node may have shown while its image went from one offset to the other."""
        first = bisect_right(self._offsets, max(first_offset, -1)) - 1
        return self._states[first : bisect_right(self._offsets, max(last_offset, first_offset, -1))]


def _after(state: State, record: Message) -> State:
    if isinstance(record, AccessControlEntryRecord):
        return state._replace(rules={**state.rules, bytes(record.id): rule_of(record)})
    if isinstance(record, RemoveAccessControlEntryRecord):
        return state._replace(rules=without(state.rules, bytes(record.id)))
    if isinstance(record, UserScramCredentialRecord):
        return state._replace(keys={**state.keys, record.name: bytes(record.stored_key)})
    if isinstance(record, RemoveUserScramCredentialRecord):
        return state._replace(keys=without(state.keys, record.name))
    if isinstance(record, DelegationTokenRecord):
        return state._replace(tokens={**state.tokens, record.token_id: record.owner})
    if isinstance(record, RemoveDelegationTokenRecord):
        return state._replace(tokens=without(state.tokens, record.token_id))
    return state


def without(values: Mapping[K, V], key: K) -> dict[K, V]:
    """Return a mapping without a key."""
    return {each: value for each, value in values.items() if each != key}


def rule_of(acl: Any) -> Rule:
    """Return an ACL of the wire, of the metadata log or of an image, which have the same names for its parts."""
    return Rule(
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )
