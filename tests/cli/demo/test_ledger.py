"""The demo's verdict: each way in which a broker could lie is seen."""

from __future__ import annotations

import pytest

from blumfeld.cli.demo.ledger import Ledger


def ledger_of(sent: list[bytes]) -> Ledger:
    """A ledger of one partition with these messages sent and acknowledged."""
    ledger = Ledger(1)
    for value in sent:
        ledger.sent(0, value, 1.0)
        ledger.acknowledged(0)
    return ledger


def test_what_was_read_again_counts_once_and_has_a_latency_once() -> None:
    """A restarted consumer may read a record twice: same offset."""
    ledger = ledger_of([b"a", b"b"])
    assert ledger.received(0, 0, b"a", 1.5) == 0.5
    assert ledger.received(0, 0, b"a", 2.0) is None
    ledger.received(0, 1, b"b", 1.5)
    assert ledger.verdict() == []
    assert ledger.count_repeated == 1
    assert len(set(ledger.digest())) == 1


@pytest.mark.parametrize(
    ("sent", "received", "verdict"),
    [
        pytest.param(
            [b"a"], [(0, b"a"), (1, b"a")], "partition 0: 1 sent, 2 received", id="doubled in the log"
        ),
        pytest.param(
            [b"a", b"b"], [(0, b"a"), (2, b"b")], "partition 0: a hole, offset 2 follows 0", id="a hole"
        ),
        pytest.param([b"a", b"b"], [(0, b"a")], "partition 0: 2 sent, 1 received", id="lost"),
        pytest.param([b"a", b"b"], [(0, b"b"), (1, b"a")], "differs", id="swapped"),
    ],
)
def test_each_lie_is_seen(sent: list[bytes], received: list[tuple[int, bytes]], verdict: str) -> None:
    ledger = ledger_of(sent)
    for offset, value in received:
        ledger.received(0, offset, value, 2.0)
    assert verdict in ledger.verdict()[0]


def test_what_was_never_acknowledged_is_wrong() -> None:
    ledger = Ledger(1)
    ledger.sent(0, b"a", 1.0)
    ledger.received(0, 0, b"a", 2.0)
    assert ledger.verdict() == ["partition 0: 1 sent, 0 acknowledged"]
