"""The account of a killed broker bites, and does not cry at what was never promised."""

from __future__ import annotations

import pytest

from campaigns.crash.records import Account, RecordLedger


def a_ledger() -> RecordLedger:
    """Messages 0 to 2 of one partition are acknowledged, the last without an offset, and 2 is committed."""
    ledger = RecordLedger(1)
    for number, offset in ((0, 0), (1, 1), (2, -1)):
        ledger.ack(0, number, offset)
    ledger.commit(0, 2)
    return ledger


def test_all_that_was_acknowledged_and_more_is_fine() -> None:
    ledger, account = a_ledger(), Account()
    ledger.check(0, [(0, 0), (1, 1), (2, 2), (3, 3)], account)
    ledger.check_committed([2], [2], [2])
    assert (account, ledger.wrong) == (Account(acked=3), [])


@pytest.mark.parametrize(
    ("log", "account", "complaint"),
    [
        ([(0, 0), (1, 1)], Account(acked=3, lost=1), "message 2, acknowledged at -1, is lost"),
        ([(0, 0), (1, 1), (2, 2), (3, 1)], Account(acked=3, doubled=1), "message 1 at 1 and at 3"),
        ([(0, 0), (1, 1), (2, 3), (3, 2)], Account(acked=3, disordered=1), "message 2 at 3 is behind 3"),
        ([(0, 0), (5, 1), (6, 2)], Account(acked=3), "message 1 was acknowledged at 1, is at 5"),
    ],
)
def test_what_was_broken_is_said(log: list[tuple[int, int]], account: Account, complaint: str) -> None:
    ledger, found = a_ledger(), Account()
    ledger.check(0, log, found)
    assert found == account
    assert any(complaint in line for line in ledger.wrong)


def test_a_second_acknowledgment_is_said() -> None:
    ledger = a_ledger()
    ledger.ack(0, 1, 7)
    assert ledger.wrong == ["partition 0: message 1 was acknowledged twice"]


@pytest.mark.parametrize(
    ("committed", "end", "complaint"),
    [(1, 9, "commit went back from 2 to 1"), (-1, 9, "from 2 to -1"), (4, 3, "beyond the log end 3")],
)
def test_commits_neither_go_back_nor_beyond_the_log(committed: int, end: int, complaint: str) -> None:
    ledger = a_ledger()
    ledger.check_committed([2], [committed], [end])
    assert complaint in ledger.wrong[0]
