"""Transaction indexes of a log: which file holds which abort, and what is believed of them."""

from __future__ import annotations

from typing import cast

import pytest

from blumfeld.broker.replicas.state.transaction_index import SOUND, TransactionIndex
from blumfeld.log.producers.aborted_transactions import AbortedTransactions, encode_aborted
from blumfeld.spi.compaction import AbortedTransaction
from blumfeld.spi.storage import PartitionLog
from tests.broker.harness import Quiet
from tests.broker.plain_storage import PlainLog


def aborted(first: int, last: int) -> AbortedTransaction:
    return AbortedTransaction(7, first, last, last + 1)


@pytest.fixture
def log() -> PlainLog:
    return PlainLog()


def index_of(log: PlainLog) -> TransactionIndex:
    return TransactionIndex(cast(PartitionLog, log), AbortedTransactions())


def name(base: int) -> str:
    return f"{base:020d}.txnindex"


def test_a_transaction_is_in_the_file_of_the_segment_with_its_marker(log: PlainLog) -> None:
    index = index_of(log)
    for entry in (aborted(0, 4), aborted(3, 12), aborted(13, 14)):
        index.append(entry)
    index.save([0, 10, 20])
    assert log.aux.files == {
        name(0): encode_aborted([aborted(0, 4)]),
        name(10): encode_aborted([aborted(3, 12), aborted(13, 14)]),
    }
    assert not index.unsaved


def test_only_segments_from_the_first_unsaved_on_are_written(log: PlainLog) -> None:
    index = index_of(log)
    index.append(aborted(0, 4))
    index.save([0])
    log.aux.files[name(0)] = b"untouched"
    index.append(aborted(11, 12))
    index.save([0, 10])
    assert log.aux.files[name(0)] == b"untouched"
    assert log.aux.files[name(10)] == encode_aborted([aborted(11, 12)])


def test_a_file_that_holds_nothing_any_more_is_removed(log: PlainLog) -> None:
    log.aux.files = {name(0): encode_aborted([aborted(0, 4)]), name(10): encode_aborted([aborted(3, 12)])}
    index = index_of(log)
    assert index.read(log.aux.names(), 5, Quiet()) == SOUND
    assert index.unsaved
    index.save([0])
    assert log.aux.files == {name(0): encode_aborted([aborted(0, 4)])}


def test_from_the_first_file_that_cannot_be_read_on_nothing_is_believed(log: PlainLog) -> None:
    log.aux.files = {
        name(0): encode_aborted([aborted(0, 4)]),
        name(10): encode_aborted([aborted(3, 9)]),  # a marker of the segment before
        name(20): encode_aborted([aborted(21, 22)]),
    }
    index, events = index_of(log), Quiet()
    assert index.read(log.aux.names(), 100, events) == 10
    assert index.entries.entries == [aborted(0, 4)]
    assert [event[:2] for event in events.events] == [("warning", "transaction index unreadable, made anew")]


def test_a_log_without_transactions_has_nothing_to_save(log: PlainLog) -> None:
    """Also after a truncation: asking for its segments would open them."""
    index = index_of(log)
    index.forget_from(3)
    assert not index.unsaved


def test_replaced_files_count_and_where_one_is_damaged_what_was_known(log: PlainLog) -> None:
    index, events = index_of(log), Quiet()
    for entry in (aborted(0, 4), aborted(3, 12), aborted(21, 22), aborted(31, 32)):
        index.append(entry)
    index.save([0, 10, 20, 30])
    del log.aux.files[name(0)]
    log.aux.files[name(20)] = b"garbage"
    index.replaced(30, events)
    assert index.entries.entries == [aborted(3, 12), aborted(21, 22), aborted(31, 32)]
