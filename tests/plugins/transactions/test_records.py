"""Records of ``__transaction_state``, byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from blumfeld.spi.groups import CoordinatorRecord
from blumfeld.wire.primitives import DecodeError
from blumfeld_transactions.transaction import (
    ORDER_PARTITIONS_MAX,
    State,
    Transaction,
    in_order,
    read_record,
    record,
)

OPEN = Transaction(
    producer_id=1000,
    previous_producer_id=999,
    next_producer_id=1001,
    epoch=3,
    timeout_ms=60_000,
    state=State.ONGOING,
    partitions=frozenset([("u", 7), ("t", 2), ("t", 0)]),
    started_ms=0x0102030405,
    updated_ms=0x0102030406,
    client_version=2,
)
KEY = "000000027478"
BODY_0 = bytes.fromhex(
    "0000 00000000000003e8 0003 0000ea60 01"  # version, producer id, epoch, timeout, Ongoing
    "00000002"
    "0001 74 00000002 00000000 00000002"  # t: 0, 2
    "0001 75 00000001 00000007"  # u: 7
    "0000000102030406 0000000102030405"  # updated, started
)
BODY_1 = bytes.fromhex(
    "0001 00000000000003e8 0003 0000ea60 01"
    "03"
    "02 74 03 00000000 00000002 00"
    "02 75 02 00000007 00"
    "0000000102030406 0000000102030405"
    "03 00 08 00000000000003e7 01 08 00000000000003e9 02 02 0002"  # tags: previous, next, client
)


@pytest.mark.parametrize(("version", "body"), [(0, BODY_0), (1, BODY_1), (2, BODY_1)])
def test_bytes(version: int, body: bytes) -> None:
    """The level of transaction.version decides about the value's version, and so about its tags (formats, part 11)."""
    made = record("tx", OPEN, version)
    assert made.key.hex() == KEY
    assert made.value == body


def test_an_empty_transaction_has_no_partitions_and_a_forgotten_one_no_value() -> None:
    empty = replace(OPEN, state=State.EMPTY, partitions=frozenset())
    assert (record("tx", empty, 0).value or b"")[17:21] == b"\xff\xff\xff\xff"
    complete = replace(OPEN, state=State.COMPLETE_COMMIT, partitions=frozenset())
    assert (record("tx", complete, 0).value or b"")[17:21] == b"\x00\x00\x00\x00"
    assert record("tx", None, 0).value is None
    assert read_record(CoordinatorRecord(record("tx", None, 0).key, None)) == ("tx", None)


TRANSACTIONS = st.builds(
    Transaction,
    producer_id=st.integers(0, 2**63 - 1),
    previous_producer_id=st.integers(-1, 2**63 - 1),
    next_producer_id=st.integers(-1, 2**63 - 1),
    epoch=st.integers(0, 0x7FFF),
    last_epoch=st.just(-1),
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from([state for state in State if state is not State.EMPTY]),
    partitions=st.frozensets(st.tuples(st.sampled_from("tuv"), st.integers(0, 9)), max_size=5),
    started_ms=st.integers(-1, 2**62),
    updated_ms=st.integers(-1, 2**62),
    client_version=st.sampled_from([0, 2]),
)


@given(TRANSACTIONS)
def test_a_record_says_what_its_replay_is_told(transaction: Transaction) -> None:
    """The shard replays its own records without decoding them, so both must say the same."""
    made = record("tx", transaction, 2)
    assert read_record(made) == ("tx", transaction)
    assert read_record(CoordinatorRecord(made.key, made.value)) == ("tx", transaction)
    old = record("tx", transaction, 0)
    expected = replace(transaction, previous_producer_id=-1, next_producer_id=-1, client_version=0)
    assert read_record(CoordinatorRecord(old.key, old.value)) == ("tx", expected)


def test_other_records_are_left_alone_and_broken_ones_are_said() -> None:
    assert read_record(CoordinatorRecord(b"\x00\x09later", b"anything")) is None
    made = record("tx", OPEN, 0)
    with pytest.raises(DecodeError):
        read_record(CoordinatorRecord(made.key, (made.value or b"")[:9]))
    with pytest.raises(ValueError, match="77"):
        read_record(
            CoordinatorRecord(made.key, (made.value or b"")[:16] + b"\x4d" + (made.value or b"")[17:])
        )


def test_the_order_of_few_partitions_is_remembered_and_of_many_found_anew() -> None:
    """Else transactions over thousands of partitions would stay in memory."""
    few = [("t", index) for index in range(ORDER_PARTITIONS_MAX)]
    many = [*few, ("t", ORDER_PARTITIONS_MAX)]
    assert in_order(frozenset(few)) == tuple(few)
    assert in_order(frozenset(few)) is in_order(frozenset(few))
    assert in_order(frozenset(many)) == tuple(many)
    assert in_order(frozenset(many)) is not in_order(frozenset(many))
