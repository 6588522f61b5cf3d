"""Aborted transactions: Kafka's bytes by hand, and the look-up against a plain scan."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld.log.producers.aborted_transactions import AbortedTransactions, decode_aborted
from blumfeld.spi.compaction import AbortedTransaction
from tests.everyday import examples

GOLDEN = bytes.fromhex("0000000000000000004d000000000000000500000000000000090000000000000007")


def test_an_entry_is_34_bytes_of_kafka() -> None:
    entry = AbortedTransaction(77, 5, 9, 7)
    assert AbortedTransactions([entry]).encode() == GOLDEN
    assert AbortedTransactions.decode(GOLDEN).entries == [entry]


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (GOLDEN[:-1], "whole number"),
        (b"\0\1" + GOLDEN[2:], "version 1"),
        (GOLDEN[:10] + (10).to_bytes(8, "big") + GOLDEN[18:], "from 10 to 9"),
    ],
)
def test_damage_is_named(damaged: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode_aborted(damaged)


def test_markers_come_in_order() -> None:
    with pytest.raises(ValueError, match="not after"):
        AbortedTransactions([AbortedTransaction(1, 0, 9, 10), AbortedTransaction(2, 5, 9, 10)])


def test_truncation_and_retention_go_by_the_marker() -> None:
    aborted = AbortedTransactions(AbortedTransaction(n, n * 10, n * 10 + 5, n * 10 + 6) for n in range(4))
    assert aborted.truncate_to(35) == 1
    assert aborted.drop_below(6) == 1
    assert [entry.producer_id for entry in aborted.entries] == [1, 2]
    assert [entry.producer_id for entry in aborted.between(15, 25)] == [1]
    assert len(aborted) == 2


def test_a_long_transaction_is_found_behind_the_marker_of_a_short_one() -> None:
    """The short one's last stable offset says that something older was still open."""
    short, long = AbortedTransaction(2, 1, 2, 0), AbortedTransaction(1, 0, 3, 4)
    assert AbortedTransactions([short, long]).overlapping(0, 2) == [short, long]
    assert AbortedTransactions([short, long]).overlapping(0, 1) == [long]


@settings(max_examples=examples(300))
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 1)), max_size=12), st.integers(0, 6), st.integers(0, 12)
)
def test_a_reader_is_told_of_all_that_overlap_what_it_reads(
    steps: list[tuple[bool, int]], start: int, size: int
) -> None:
    """A log of transactions of two producers; the last stable offset is what Kafka would say."""
    open_since: dict[int, int] = {}
    entries = []
    for offset, (is_marker, producer) in enumerate(steps):
        if not is_marker:
            open_since.setdefault(producer, offset)
        elif producer in open_since:
            first = open_since.pop(producer)
            stable = min(open_since.values(), default=offset + 1)
            entries.append(AbortedTransaction(producer, first, offset, stable))
    end = start + size
    expected = [e for e in entries if e.last_offset >= start and e.first_offset < end]
    assert AbortedTransactions(entries).overlapping(start, end) == expected
