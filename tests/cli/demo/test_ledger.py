"""The demo's verdict: each way in which a broker could lie is seen."""

from __future__ import annotations

from blumfeld.cli.demo.ledger import Ledger


def ledger_of(sent: list[bytes]) -> Ledger:
    """A ledger of one partition with these messages sent and acknowledged."""
    ledger = Ledger(1)
    for value in sent:
        ledger.sent(0, value, 1.0)
        ledger.acknowledged(0)
    return ledger


def test_all_is_well() -> None:
    ledger = ledger_of([b"a", b"b"])
    assert ledger.received(0, 0, b"a", 1.5) == 0.5
    ledger.received(0, 1, b"b", 1.5)
    assert ledger.verdict() == []
    assert len(set(ledger.digest())) == 1


def test_what_was_read_again_counts_once() -> None:
    """A restarted consumer may read a record twice: same offset."""
    ledger = ledger_of([b"a"])
    ledger.received(0, 0, b"a", 2.0)
    assert ledger.received(0, 0, b"a", 2.0) is None
    assert ledger.verdict() == []
    assert ledger.count_repeated == 1


def test_a_record_doubled_in_the_log_is_seen() -> None:
    ledger = ledger_of([b"a"])
    ledger.received(0, 0, b"a", 2.0)
    ledger.received(0, 1, b"a", 2.0)
    assert ledger.verdict() == ["partition 0: 1 sent, 2 received"]


def test_a_hole_is_seen() -> None:
    ledger = ledger_of([b"a", b"b"])
    ledger.received(0, 0, b"a", 2.0)
    ledger.received(0, 2, b"b", 2.0)
    assert ledger.verdict() == ["partition 0: a hole, offset 2 follows 0"]


def test_a_lost_a_changed_and_a_swapped_message_are_seen() -> None:
    lost = ledger_of([b"a", b"b"])
    lost.received(0, 0, b"a", 2.0)
    assert lost.verdict() == ["partition 0: 2 sent, 1 received"]
    swapped = ledger_of([b"a", b"b"])
    swapped.received(0, 0, b"b", 2.0)
    swapped.received(0, 1, b"a", 2.0)
    assert "differs" in swapped.verdict()[0]


def test_what_was_never_acknowledged_is_wrong() -> None:
    ledger = Ledger(1)
    ledger.sent(0, b"a", 1.0)
    ledger.received(0, 0, b"a", 2.0)
    assert ledger.verdict() == ["partition 0: 1 sent, 0 acknowledged"]
