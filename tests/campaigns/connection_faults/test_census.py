"""A census sees what is more than it was, and nothing else."""

from __future__ import annotations

import gc
import os
import socket
from collections import Counter
from dataclasses import replace

import pytest

from campaigns.connection_faults import census
from campaigns.connection_faults.census import Census
from campaigns.connection_faults.load import Seen

AT_FIRST = Census(Counter({"socket": 9, "file": 4, "[eventpoll]": 2}), 2, 6, 0, 1 << 20)
WELL = Seen(100, 100, 1.0, 5.0, 6.0, ())


def test_an_open_socket_and_an_open_pipe_are_seen() -> None:
    gc.collect()  # or the collector closes what other tests left, before the last count
    before = census.fds_by_kind(os.getpid())
    with socket.socket():
        reader, writer = os.pipe()
        now = census.fds_by_kind(os.getpid())
        os.close(reader)
        os.close(writer)
    assert now["socket"] - before["socket"] == 1
    assert now["pipe"] - before["pipe"] == 2
    assert census.fds_by_kind(os.getpid()) == before


def test_what_is_more_is_a_leak_and_what_is_less_is_none() -> None:
    fds = Counter({"socket": 11, "file": 3, "[eventpoll]": 2, "pipe": 1})
    now = replace(AT_FIRST, fds=fds, tasks=3, connections=5, parked=2, rss_bytes=1 << 30)
    assert now.leaks(AT_FIRST) == ["1 pipe descriptors", "2 socket descriptors", "1 tasks", "2 parked"]
    assert AT_FIRST.leaks(AT_FIRST) == []


def test_a_count_is_repeated_until_it_is_as_before() -> None:
    counts = [replace(AT_FIRST, connections=8), replace(AT_FIRST, connections=7), AT_FIRST]
    assert census.take_settled(lambda: counts.pop(0), AT_FIRST, False, 5.0) is AT_FIRST
    more = replace(AT_FIRST, connections=7)
    assert census.take_settled(lambda: more, AT_FIRST, False, 0.2) is more


@pytest.mark.parametrize(
    ("seen", "wrong"),
    [
        (WELL, ""),
        (replace(WELL, errors=("load-0: closed",)), "the background load failed: load-0: closed"),
        (replace(WELL, fetched=0), "the background load got nothing"),
        (replace(WELL, worst_ms=5_500.0), "the background load was stalled for 5500 ms"),
        (replace(WELL, worst_end_to_end_ms=5_600.0), "the background load was stalled for 5600 ms"),
    ],
)
def test_the_background_load_must_notice_nothing(seen: Seen, wrong: str) -> None:
    assert seen.wrong() == ([wrong] if wrong else [])
