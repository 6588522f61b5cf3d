"""The demo's feeds."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from blumfeld.cli.demo.feed import FeedError, captured_feed, synthetic_feed


def test_the_same_seed_gives_the_same_bytes() -> None:
    """And another seed gives others."""
    assert list(synthetic_feed(200, 7)) == list(synthetic_feed(200, 7))
    assert list(synthetic_feed(200, 7)) != list(synthetic_feed(200, 8))


def test_synthetic_messages_are_json_with_their_event_time() -> None:
    """Each is a trade or a depth change of its stream, in event-time order."""
    feed = list(synthetic_feed(500, 1))
    assert {m.key.split(b"@")[1] for m in feed} == {b"trade", b"depth"}
    assert [m.event_ms for m in feed] == sorted(m.event_ms for m in feed)
    assert all(json.loads(m.value)["data"]["E"] == m.event_ms for m in feed)


@pytest.mark.parametrize("opener", [gzip.open, open], ids=["gzip", "plain"])
def test_a_capture_keeps_every_byte_of_the_json(tmp_path: Path, opener: object) -> None:
    """Key from the stream, time from E where there is one, from the local clock otherwise."""
    path = tmp_path / "feed"
    lines = (
        b'1723161255088169167 {"stream":"btcusdt@trade","data":{"E":1723161256322}}\n'
        b'1723161255319702566 {"lastUpdateId":5,"bids":[]}\n'
    )
    with opener(path, "wb") as out:  # type: ignore[operator]
        out.write(lines)
    first, second = captured_feed(path)
    assert first == (
        b"btcusdt@trade",
        b'{"stream":"btcusdt@trade","data":{"E":1723161256322}}',
        1723161256322,
    )
    assert second == (b"snapshot", b'{"lastUpdateId":5,"bids":[]}', 1723161255319)


def test_a_line_that_is_no_message_is_named(tmp_path: Path) -> None:
    """The error has the file, the line's number and what was found."""
    path = tmp_path / "feed"
    path.write_bytes(b'1 {"a":1}\nnonsense\n')
    with pytest.raises(FeedError, match="line 2: expected '<nanoseconds> <JSON>', found b'nonsense'"):
        list(captured_feed(path))


def test_an_absent_or_broken_file_is_one_clear_error(tmp_path: Path) -> None:
    """No traceback of gzip's reaches a person."""
    with pytest.raises(FeedError, match="No such file"):
        list(captured_feed(tmp_path / "absent"))
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(b'1 {"a":1}\n' * 1000)[:-20])
    with pytest.raises(FeedError, match=r"cut\.gz"):
        list(captured_feed(cut))
