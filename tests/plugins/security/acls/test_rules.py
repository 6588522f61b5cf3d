"""The rules of StandardAuthorizer: the index against one scan over all ACLs, and what it costs."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld.wire.acl_operations import OPERATIONS
from blumfeld_security.acls.persistent_map import LEAF_ENTRIES_MAX, REMOVED, PersistentMap
from blumfeld_security.acls.rules import (
    ALL,
    ALLOW,
    DENIED_MAX,
    DENY,
    LITERAL,
    PREFIXED,
    RESOURCE_TYPES,
    Acl,
    Acls,
    StandardRules,
    host_form,
    id_of,
)
from tests.everyday import examples
from tests.plugins.security.acls import oracle

TOPIC = RESOURCE_TYPES["Topic"]
PRINCIPALS = ("User:a", "User:b", "Group:a", "User:*")
HOSTS = ("10.0.0.1", "10.0.0.2")
NAMES = ("a", "ab", "abc", "b", "*", "hardcode", "h")

acl = st.builds(
    Acl,
    resource_type=st.sampled_from([TOPIC, RESOURCE_TYPES["Group"]]),
    resource_name=st.sampled_from(NAMES),
    pattern_type=st.sampled_from([LITERAL, PREFIXED]),
    principal=st.sampled_from(PRINCIPALS),
    host=st.sampled_from([*HOSTS, "*"]),
    operation=st.sampled_from([ALL, *(OPERATIONS[o] for o in ("Read", "Write", "Describe", "AlterConfigs"))]),
    permission_type=st.sampled_from([ALLOW, ALLOW, DENY]),
)
steps = st.lists(st.lists(st.tuples(st.integers(0, 12).map(id_of), st.none() | acl), max_size=6), max_size=6)


def acls_of(*entries: Acl) -> Acls:
    return Acls().updated([(id_of(number), entry) for number, entry in enumerate(entries)])


def all_by_id(acls: Acls) -> dict[bytes, Acl]:
    return {id_of(number): entry for part in acls.parts() for number, entry in part}


def topic(name: str, operation: str, **others: Any) -> Acl:
    fields: dict[str, Any] = {"pattern_type": LITERAL, "principal": "User:a", "host": "*"}
    fields |= {"permission_type": ALLOW} | others
    return Acl(resource_type=TOPIC, resource_name=name, operation=OPERATIONS[operation], **fields)


@settings(max_examples=examples(300))
@given(steps=steps, allow_everyone=st.booleans())
def test_the_index_gives_the_verdict_of_a_scan(
    steps: list[list[tuple[bytes, Acl | None]]], allow_everyone: bool
) -> None:
    acls, by_id = Acls(), dict[bytes, Acl]()
    rules = StandardRules(frozenset({"User:root"}), allow_everyone)
    for step in steps:
        acls = acls.updated(step)
        for acl_id, entry in step:
            by_id.pop(acl_id, None)
            if entry is not None:
                by_id[acl_id] = entry
    assert all_by_id(acls) == by_id
    all_of_them = list(by_id.values())
    for principal in ("User:a", "Group:a", "User:root", "User:*"):
        for operation in ("Read", "Describe", "DescribeConfigs", "Alter"):
            for host in HOSTS:
                found = rules.authorize_by_type(acls, principal, host, operation, "Topic")
                hardcode = rules.authorize(acls, principal, host, operation, "Topic", "hardcode")
                by_type = oracle.authorize_by_type(all_of_them, principal, host, operation, "Topic")
                assert found == (hardcode or by_type)
                for name in NAMES:
                    asked = (principal, host, operation, "Topic", name)
                    expected = oracle.authorize(all_of_them, rules.super_users, allow_everyone, *asked)
                    assert rules.authorize(acls, *asked) == expected, (asked, all_of_them)


@given(changes=steps)
def test_an_update_leaves_the_value_before_it_as_it_was(
    changes: list[list[tuple[bytes, Acl | None]]],
) -> None:
    before = acls_of(topic("a", "Read"), topic("a", "Write", pattern_type=PREFIXED))
    items = all_by_id(before)
    prefixes = {kind: dict(counts) for kind, counts in before.resource_prefixes.items()}
    after = before
    for step in changes:
        after = after.updated(step)
    assert all_by_id(before) == items
    assert before.resource_prefixes == prefixes
    assert before.verdict("User:a", "h", OPERATIONS["Write"], TOPIC, "ab") is True


def test_a_value_without_acls_is_empty_in_all_its_parts() -> None:
    entries = (topic("a", "Read"), topic("ab", "Write", pattern_type=PREFIXED, permission_type=DENY))
    acls = acls_of(*entries)
    acls = acls.updated([(acl_id, None) for acl_id in all_by_id(acls)])
    assert not len(acls)
    assert not list(acls.subjects.items())
    assert not list(acls.resources.items())
    assert acls.resource_prefixes == {TOPIC: {}}


def test_an_equal_acl_is_found_by_its_fields() -> None:
    acls = acls_of(topic("a", "Read"), topic("a", "Write"), topic("a", "Read", host="::1"))
    assert acls.ids_of(topic("a", "Read")) == (id_of(0),)
    assert acls.ids_of(topic("a", "Read", host="0:0:0:0:0:0:0:1")) == ()
    assert acls.ids_of(topic("b", "Read")) == ()


@pytest.mark.parametrize(
    ("host", "form"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("0:0:0:0:0:0:0:1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::ff", "2001:db8:0:0:0:0:0:ff"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("no:address", "no:address"),
        ("*", "*"),
    ],
)
def test_an_ipv6_address_has_the_form_in_which_kafka_compares_it(host: str, form: str) -> None:
    assert host_form(host) == form


def test_an_acl_on_an_ipv6_address_holds_in_either_form() -> None:
    for host in ("::1", "0:0:0:0:0:0:0:1"):
        acls = acls_of(topic("a", "Read", host=host))
        for peer in ("::1", "0:0:0:0:0:0:0:1"):
            assert StandardRules().authorize(acls, "User:a", peer, "Read", "Topic", "a")


@given(st.dictionaries(st.integers(0, 400), st.integers()), st.lists(st.integers(0, 400)))
def test_a_persistent_map_is_a_dict(items: dict[int, int], gone: list[int]) -> None:
    mapping = PersistentMap[int, int]().updated(items)
    left = {key: value for key, value in items.items() if key not in gone}
    after = mapping.updated(dict.fromkeys(gone, REMOVED))
    assert dict(mapping.items()) == items
    assert dict(after.items()) == left
    assert len(after) == len(left)
    assert all(after.get(key) == left.get(key) for key in range(400))


class Colliding:
    """All of them have one hash."""

    def __hash__(self) -> int:
        return 7


def test_keys_of_one_hash_make_a_leaf_grow_and_no_endless_tree() -> None:
    keys = [Colliding() for _ in range(2 * LEAF_ENTRIES_MAX)]
    mapping = PersistentMap[Colliding, int]().updated({key: number for number, key in enumerate(keys)})
    assert [mapping.get(key) for key in keys] == list(range(len(keys)))


@pytest.mark.parametrize("shape", ["names", "prefixes", "principals on one topic", "one principal"])
def test_a_verdict_and_a_change_among_many_acls_cost_no_scan(shape: str) -> None:
    """The measure is instructions of the interpreter: the same on a busy machine."""
    few, many = (_steps_of_a_verdict_and_a_change(shape, count) for count in (1_000, 16_000))
    assert many[0] < 2 * few[0] + 20
    assert many[1] < 3 * few[1] + 500


@pytest.mark.parametrize("operation", ["Read", "Write"])
def test_a_right_on_some_topic_costs_no_scan(operation: str) -> None:
    """A client that may only read asks for Write on any at each start of an idempotent producer."""

    def steps(count: int) -> int:
        acls = acls_of(*(_entry("one principal", number) for number in range(count)))
        asked = ("User:7", "h", operation, "Topic")
        return _lines(lambda: StandardRules().authorize_by_type(acls, *asked))

    assert steps(16_000) < 2 * steps(1_000)


def test_many_rights_that_are_all_denied_cost_no_scan() -> None:
    """100,000 of them would hold the loop for a quarter of a second at each start of an idempotent producer."""

    def steps(count: int) -> int:
        entries = [_entry("one principal", number) for number in range(count)]
        denied = [msgspec.structs.replace(entry, permission_type=DENY) for entry in entries]
        acls = acls_of(*entries, *denied)
        asked = ("User:7", "h", "Read", "Topic")
        assert not StandardRules().authorize_by_type(acls, *asked)
        return _lines(lambda: StandardRules().authorize_by_type(acls, *asked))

    assert steps(4 * DENIED_MAX) < 2 * steps(DENIED_MAX)


def test_a_right_on_some_topic_ends_with_its_last_acl() -> None:
    def may_write(acls: Acls) -> bool:
        return StandardRules().authorize_by_type(acls, "User:a", "h", "Write", "Topic")

    acls = acls_of(topic("a", "Read"), topic("b", "Write"), topic("b", "Read"))
    assert may_write(acls)
    assert not may_write(acls.updated([(id_of(1), None)]))


def _steps_of_a_verdict_and_a_change(shape: str, count: int) -> tuple[int, int]:
    acls = acls_of(*(_entry(shape, number) for number in range(count)))
    verdict = _lines(lambda: StandardRules().authorize(acls, "User:7", "h", "Write", "Topic", "topic-7"))
    return verdict, _lines(lambda: acls.updated([(id_of(count), _entry(shape, count))]))


def _entry(shape: str, number: int) -> Acl:
    match shape:
        case "names":
            return topic(f"topic-{number}", "Read", principal=f"User:{number % 50}")
        case "prefixes":
            return topic(f"topic-{number:x}", "Read", principal=f"User:{number % 50}", pattern_type=PREFIXED)
        case "principals on one topic":
            return topic("topic-7", "Read", principal=f"User:{number}")
        case _:
            return topic(f"topic-{number}", "Read", principal="User:7")


def _lines(work: Any) -> int:
    import sys

    lines = 0

    def trace(_frame: Any, event: str, _argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.slow
def test_a_hundred_thousand_acls_load_in_seconds() -> None:
    entries = [(id_of(n), _entry("prefixes" if n % 3 else "names", n)) for n in range(100_000)]
    started = time.process_time()
    acls = Acls().updated(entries)
    took = time.process_time() - started
    assert len(acls) == 100_000
    assert took < 10, took
