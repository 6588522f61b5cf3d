"""The account of acknowledged records bites, and does not cry at what was never promised."""

from __future__ import annotations

import pytest

from campaigns.clients.load.acknowledged_records import Account, AcknowledgedRecords


def three_acknowledged() -> AcknowledgedRecords:
    """Records 0 to 2 of one partition are acknowledged, the last without an offset."""
    acknowledged = AcknowledgedRecords(1)
    for number, offset in ((0, 0), (1, 1), (2, -1)):
        acknowledged.ack(0, number, offset)
    return acknowledged


def test_all_that_was_acknowledged_and_more_is_fine() -> None:
    acknowledged, account = three_acknowledged(), Account()
    acknowledged.check(0, [(0, 0), (1, 1), (2, 2), (3, 3)], account)
    assert (account, acknowledged.wrong) == (Account(acked=3), [])


@pytest.mark.parametrize(
    ("log", "account", "complaint"),
    [
        ([(0, 0), (1, 1)], Account(acked=3, lost=1), "record 2, acknowledged at -1, is lost"),
        ([(0, 0), (1, 1), (2, 2), (3, 1)], Account(acked=3, doubled=1), "record 1 at 1 and at 3"),
        ([(0, 0), (1, 1), (2, 3), (3, 2)], Account(acked=3, disordered=1), "record 2 at 3 is behind 3"),
        ([(0, 0), (5, 1), (6, 2)], Account(acked=3), "record 1, acknowledged at 1, is at 5"),
    ],
)
def test_each_broken_promise_is_said(log: list[tuple[int, int]], account: Account, complaint: str) -> None:
    acknowledged, own_account = three_acknowledged(), Account()
    acknowledged.check(0, log, own_account)
    assert own_account == account
    assert any(complaint in line for line in acknowledged.wrong)


def test_a_second_acknowledgment_is_said() -> None:
    acknowledged = three_acknowledged()
    acknowledged.ack(0, 1, 7)
    assert acknowledged.wrong == ["partition 0: record 1 was acknowledged twice"]
