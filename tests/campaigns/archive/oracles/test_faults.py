"""Planted faults are of their kind, and break nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from blumfeld.feeds.binance import MadeFeed, Message
from campaigns.archive.common.capture import decoder_of, read_capture, write_capture
from campaigns.archive.oracles.faults import KINDS, Fault, breaks, plant, stream_of

COUNT = 24
BORDER = 100


@pytest.fixture(scope="module")
def feed() -> list[Message]:
    return MadeFeed(2).messages(COUNT * 2 * BORDER + 2 * BORDER)


def test_a_made_feed_is_continuous_and_the_same_from_the_same_seed(feed: list[Message]) -> None:
    assert breaks(feed) == []
    assert MadeFeed(2).messages(50) == feed[:50] != MadeFeed(3).messages(50)


@pytest.mark.parametrize("border", [0, BORDER])
@pytest.mark.parametrize("seed", range(4))
def test_the_exchanges_rules_break_where_a_fault_is_named_and_nowhere_else(
    feed: list[Message], seed: int, border: int
) -> None:
    planted, faults = plant(feed, COUNT, seed, border)
    assert sorted(offset for fault in faults for offset in fault.named) == breaks(planted)


def test_all_kinds_are_planted_in_both_streams_at_borders_and_between(feed: list[Message]) -> None:
    _, faults = plant(feed, COUNT, 1, BORDER)
    wanted = {(kind, stream, where) for kind in KINDS for stream in ("trade", "depth") for where in (0, 1)}
    assert {(fault.kind, fault.stream, _at_border(fault)) for fault in faults} == wanted


def _at_border(fault: Fault) -> int:
    return int(any(offset % BORDER == 0 for offset in fault.named))


def test_a_planted_feed_has_the_messages_of_the_feed_but_for_those_dropped_and_doubled(
    feed: list[Message],
) -> None:
    planted, faults = plant(feed, COUNT, 1, BORDER)
    kept = set(planted)
    dropped = [message for message in feed if message not in kept]
    assert len(dropped) == sum(fault.kind == "dropped" for fault in faults)
    doubled = len(planted) - len(kept)
    assert doubled == sum(fault.kind == "doubled" for fault in faults)
    assert all(stream_of(message.parsed()) for message in dropped)


def test_a_feed_too_short_for_its_faults_is_refused(feed: list[Message]) -> None:
    with pytest.raises(ValueError, match="too few for 24 faults at borders of 1000"):
        plant(feed, COUNT, 1, 1000)


@pytest.mark.parametrize("name", ["feed.gz", "feed.txt"])
def test_a_capture_that_is_written_reads_back(tmp_path: Path, name: str) -> None:
    messages = MadeFeed(4).messages(60)
    assert read_capture(write_capture(tmp_path / name, messages)) == messages


def test_a_line_that_is_no_message_is_named(tmp_path: Path) -> None:
    (tmp_path / "torn").write_bytes(b'1723161255030314667 {"a":1}\n{"b":2}\n')
    with pytest.raises(ValueError, match="torn:2: not '<ns> <JSON>'"):
        read_capture(tmp_path / "torn")


def test_a_captures_venue_is_told_by_its_diffs() -> None:
    made = MadeFeed(4).messages(30)
    spot = [Message(m.received_ns, m.value.replace(b'"pu"', b'"xx"')) for m in made]
    assert (decoder_of(made), decoder_of(spot)) == ("binance-usdm", "binance-spot")
    with pytest.raises(ValueError, match="--decoder"):
        decoder_of([])
