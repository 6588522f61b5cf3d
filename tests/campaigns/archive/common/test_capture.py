"""Captures that the campaigns write and read."""

from __future__ import annotations

from pathlib import Path

import pytest

from blumfeld.feeds.binance import MadeFeed, Message
from campaigns.archive.common.capture import decoder_of, read_capture, write_capture


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
