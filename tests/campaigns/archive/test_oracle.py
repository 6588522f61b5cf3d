"""The exchange's numbering breaks where a message of a numbered stream is dropped, doubled or swapped."""

from __future__ import annotations

import pytest

from blumfeld.feeds.binance import MadeFeed, Message
from campaigns.archive.oracle import breaks

FEED = MadeFeed(2).messages(600)
NUMBERED = {
    kind: [at for at, message in enumerate(FEED) if b'"e":"%s"' % kind in message.value]
    for kind in (b"trade", b"depthUpdate")
}


@pytest.mark.parametrize("kind", NUMBERED)
def test_breaks_are_found_where_they_are_and_nowhere_else(kind: bytes) -> None:
    first, second, third = NUMBERED[kind][5:8]
    swapped: list[Message] = list(FEED)
    swapped[first], swapped[second] = FEED[second], FEED[first]
    assert breaks(FEED) == set()
    assert breaks([*FEED[:first], *FEED[first + 1 :]]) == {second - 1}
    assert breaks([*FEED[:first], FEED[first], *FEED[first:]]) == {first + 1}
    assert breaks(swapped) >= {first, second}
    assert breaks(swapped) <= {first, second, third}
