"""The account of transaction-kills bites: each way in which an output can be wrong is told."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.control_records import build_transaction_marker
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import Record
from campaigns.transactions.feed import placed
from campaigns.transactions.oracle import (
    Account,
    Pair,
    Seen,
    Transcript,
    check_isolation,
    check_rest,
    compare,
    digest_of,
    sha256_of,
    transcript_of,
)

LINES = [b"line %d" % number for number in range(12)]
WANTED = placed(LINES, 2)[0]


def seen(pairs: Sequence[Pair], first: int = 0, doomed: bool = False) -> list[Seen]:
    return [Seen(first + at, pair, doomed) for at, pair in enumerate(pairs)]


def account_of(copies: Sequence[Seen]) -> tuple[Account, list[str]]:
    account = Account()
    return account, compare(0, WANTED, copies, account)


def test_the_input_itself_is_exact() -> None:
    account, wrong = account_of(seen(WANTED))
    assert (account.is_exact, account.records, wrong) == (True, 6, [])
    assert digest_of(placed(LINES, 2)) == sha256_of(LINES)


@pytest.mark.parametrize(
    ("copies", "kind", "count"),
    [
        (seen(WANTED[:2] + WANTED[3:]), "lost", 1),
        (seen([*WANTED[:3], WANTED[2], *WANTED[3:]]), "doubled", 1),
        (seen([*WANTED[:3], *WANTED[1:]]), "doubled", 2),
        (seen([WANTED[1], WANTED[0], *WANTED[2:]]), "disordered", 1),
        (seen([*WANTED, (b"99", b"of nobody")]), "foreign", 1),
        (seen([(WANTED[0][0], b"another value"), *WANTED[1:]]), "foreign", 1),
        ([*seen(WANTED[:5]), *seen(WANTED[5:], 5, doomed=True)], "leaked", 1),
    ],
)
def test_a_difference_is_told_by_its_kind(copies: list[Seen], kind: str, count: int) -> None:
    account, wrong = account_of(copies)
    assert getattr(account, kind) == count
    assert not account.is_exact
    assert any(f"{count} records {kind}" in line for line in wrong)


def test_a_record_again_is_not_out_of_order_too() -> None:
    """One fault is counted once: what comes again comes late."""
    account, _ = account_of(seen([*WANTED, WANTED[0]]))
    assert (account.doubled, account.disordered) == (1, 0)


@pytest.mark.parametrize(
    "changed",
    [
        lambda pairs: [pairs[0][1:], pairs[1]],
        lambda pairs: [[*pairs[0], pairs[0][0]], pairs[1]],
        lambda pairs: [[(pairs[0][0][0], b"x"), *pairs[0][1:]], pairs[1]],
    ],
)
def test_the_digest_changes_with_any_line(changed) -> None:  # type: ignore[no-untyped-def]
    assert digest_of(changed(placed(LINES, 2))) != sha256_of(LINES)


def batch(base: int, producer_id: int, epoch: int = 0, count: int = 2, transactional: bool = True) -> bytes:
    made = build_batch(
        [Record(value=b"v", offset=base + at) for at in range(count)],
        base_offset=base,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        transactional=transactional,
    )
    return bytes(made)


def marker(base: int, producer_id: int, commit: bool, epoch: int = 0) -> bytes:
    made = build_transaction_marker(
        commit=commit,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=0,
        timestamp_ms=0,
        base_offset=base,
    )
    return bytes(made)


def transcript(*parts: bytes) -> Transcript:
    return transcript_of([RecordBatch(memoryview(part)) for part in parts])


def test_a_marker_ends_what_its_producer_wrote() -> None:
    """Two producers at once; a second marker ends nothing; one transaction stays open."""
    outcome = transcript(
        batch(0, 7),
        batch(2, 8),
        marker(4, 7, commit=True),
        marker(5, 8, commit=False),
        marker(6, 8, commit=False),
        batch(7, 7, epoch=1),
        batch(9, 9, transactional=False),
    )
    assert (outcome.committed, outcome.aborted) == ([0, 1], [2, 3])
    assert (outcome.commits, outcome.aborts, outcome.idle_markers, outcome.plain) == (1, 1, 1, 2)
    assert outcome.open == {(7, 1): [7, 8]}
    assert outcome.producers == {(7, 0), (8, 0), (7, 1)}


ENDED = transcript(batch(0, 7), marker(2, 7, commit=True), batch(3, 7), marker(5, 7, commit=False))


def test_isolation_levels_that_agree_with_the_log_are_fine() -> None:
    assert check_isolation(0, ENDED, [0, 1], [0, 1, 3, 4], [3, 4]) == []


@pytest.mark.parametrize(
    ("committed", "everything", "aborted_offsets", "complaint"),
    [
        ([0, 1, 3, 4], [0, 1, 3, 4], [3, 4], "read_committed shows 4 records, the log has 2 committed"),
        ([0], [0, 1, 3, 4], [3, 4], "read_committed shows 1 records"),
        ([0, 1], [0, 1], [], "read_uncommitted shows 2 records, the log has 4"),
        ([0, 1], [0, 1], [3], "1 aborted records are not in read_uncommitted, such as 3"),
        ([0, 1], [0, 1, 3, 4], [1], "1 records of aborted transactions have no abort marker"),
    ],
)
def test_isolation_levels_that_disagree_are_told(
    committed: list[int], everything: list[int], aborted_offsets: list[int], complaint: str
) -> None:
    wrong = check_isolation(0, ENDED, committed, everything, aborted_offsets)
    assert any(complaint in line for line in wrong), wrong


def test_what_hangs_is_told() -> None:
    """An open transaction in the log, and a record outside of any."""
    left = transcript(batch(0, 7), batch(2, -1, transactional=False))
    wrong = check_isolation(0, left, [], [0, 1], [])
    assert "output-0: the transaction of producer 7, epoch 0, is open from 0 on" in wrong
    assert "output-0: 2 records are in no transaction" in wrong


REST = ({("t", 0): (5, 5)}, [("a", "CompleteCommit"), ("b", "Empty")], {0: 3}, {0: 3})


def test_a_cluster_at_rest_is_fine() -> None:
    assert check_rest(*REST) == []


@pytest.mark.parametrize(
    ("at", "instead", "complaint"),
    [
        (0, {("t", 0): (5, 4)}, "t-0: the last stable offset 4 is below the high watermark 5"),
        (1, [("a", "PrepareCommit")], "transactional id a is left in PrepareCommit"),
        (1, [("a", "Ongoing")], "transactional id a is left in Ongoing"),
        (2, {0: 2}, "input-0: the group has committed 2, the log ends at 3"),
        (2, {}, "input-0: the group has committed -1, the log ends at 3"),
    ],
)
def test_what_is_not_at_rest_is_told(at: int, instead: object, complaint: str) -> None:
    given = [*REST]
    given[at] = instead  # type: ignore[call-overload]
    assert check_rest(*given) == [complaint]  # type: ignore[arg-type]
