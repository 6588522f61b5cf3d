"""The oracle's own rules of ACLs, and the states of the rights by offset."""

from __future__ import annotations

from blumfeld.metadata.image.record_frame import encode_record
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.messages.metadata_records import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    UserScramCredentialRecord,
)
from blumfeld.wire.schema import Message
from blumfeld_kit.simulation.secured.rights import (
    ALL,
    ALLOW,
    DENY,
    DESCRIBE,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    WRITE,
    Rights,
    Rule,
    Wanted,
    allows,
)


def rule(
    name: str = "work",
    pattern: int = LITERAL,
    operation: int = READ,
    permission: int = ALLOW,
    principal: str = "User:ada",
    host: str = "*",
) -> Rule:
    return Rule(TOPIC, name, pattern, principal, host, operation, permission)


def wanted(operation: int = READ, name: str = "work") -> Wanted:
    return Wanted("User:ada", "10.9.0.1", operation, TOPIC, name)


def test_an_acl_allows_what_it_names() -> None:
    assert not allows([], wanted())
    for allowing in (
        rule(),
        rule("*"),
        rule("wo", PREFIXED),
        rule(operation=ALL),
        rule(principal="User:*"),
        rule(host="10.9.0.1"),
    ):
        assert allows([allowing], wanted()), allowing
    for other in (
        rule("wo"),
        rule("works", PREFIXED),
        rule(operation=WRITE),
        rule(principal="User:bob"),
        rule(host="10.9.0.2"),
        rule()._replace(resource_type=3),
    ):
        assert not allows([other], wanted()), other


def test_read_and_write_allow_describe_and_a_denial_counts_for_its_operation_alone() -> None:
    assert allows([rule()], wanted(DESCRIBE))
    assert allows([rule(operation=WRITE)], wanted(DESCRIBE))
    assert not allows([rule(operation=DESCRIBE)], wanted(READ))
    assert not allows([rule(), rule("w", PREFIXED, ALL, DENY)], wanted())
    assert allows([rule(), rule(operation=READ, permission=DENY)], wanted(DESCRIBE))


def acl(number: int) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=number.to_bytes(16),
        resource_type=TOPIC,
        resource_name="work",
        pattern_type=LITERAL,
        principal="User:ada",
        host="*",
        operation=READ,
        permission_type=ALLOW,
    )


def taken(*batches: list[Message]) -> Rights:
    rights, offset = Rights(), 0
    for batch in batches:
        data = build_batch([Record(value=encode_record(record)) for record in batch], base_offset=offset)
        rights.take(offset, bytes(data))
        offset += len(batch)
    return rights


def test_a_node_may_show_the_state_that_it_had_and_each_later_one() -> None:
    rights = taken(
        [acl(1)], [acl(2), acl(3)], [UserScramCredentialRecord(name="ada", mechanism=1, stored_key=b"key")]
    )
    assert [len(state.rules) for state in rights.between(-1, 3)] == [0, 1, 3, 3]
    assert [len(state.rules) for state in rights.between(0, 0)] == [1]
    assert [len(state.rules) for state in rights.between(1, 1)] == [1]
    assert [len(state.rules) for state in rights.between(1, 2)] == [1, 3]
    assert [state.keys.get("ada") for state in rights.between(2, 3)] == [None, b"key"]
    assert rights.end_offset == 4


def test_a_right_that_is_taken_away_is_gone_behind_its_record() -> None:
    rights = taken([acl(1)], [RemoveAccessControlEntryRecord(id=acl(1).id)])
    assert rights.between(0, 1)[0].rules
    assert not rights.newest.rules


def test_tokens_come_and_go() -> None:
    created = DelegationTokenRecord(owner="User:ada", requester="User:admin", token_id="t")
    rights = taken([created], [RemoveDelegationTokenRecord(token_id="t")])
    assert [dict(state.tokens) for state in rights.between(-1, 1)] == [{}, {"t": "User:ada"}, {}]


def test_records_that_nobody_saw_are_a_gap() -> None:
    rights = taken([acl(1)])
    assert not rights.has_gap
    data = build_batch([Record(value=encode_record(acl(2)))], base_offset=5)
    rights.take(5, bytes(data))
    assert rights.has_gap
