"""The comparison behind the matrix sees each way in which records can come back wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from campaigns.clients.records import (
    Received,
    Sample,
    Traits,
    differences,
    header_samples,
    mixed_samples,
    tombstone_samples,
)

TRAITS = Traits()


def returned(samples: list[Sample]) -> list[Received]:
    """The records of a perfect broker, from offset 7 on."""
    next_offset: dict[int, int] = {}
    got = []
    for s in samples:
        offset = next_offset.get(s.partition, 7)
        next_offset[s.partition] = offset + 1
        got.append(Received(s.partition, offset, s.key, s.value, s.headers, s.timestamp_ms))
    return got


@pytest.mark.parametrize("make", [lambda: mixed_samples(TRAITS, 3), lambda: header_samples(TRAITS)])
def test_what_comes_back_as_it_was_sent_is_no_difference(make: Callable[[], list[Sample]]) -> None:
    samples = make()
    assert differences(samples, returned(samples), TRAITS, 0) == []


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda got: got[:-1], "3 records sent, 2 received"),
        (lambda got: [*got, got[-1]], "3 records sent, 4 received"),
        (lambda got: [got[1], got[0], got[2]], "not without a hole"),
        (lambda got: [replace(got[0], offset=1), *got[1:]], "not without a hole"),
        (lambda got: [replace(got[0], key=b""), *got[1:]], "key None came back as b''"),
        (lambda got: [replace(got[0], value=b"other"), *got[1:]], "value b'v0' came back"),
        (lambda got: [*got[:2], replace(got[2], headers=got[2].headers[::-1])], "headers"),
        (lambda got: [replace(got[0], timestamp_ms=5), *got[1:]], "timestamp"),
        (lambda got: [replace(got[0], partition=1), *got[1:]], "partition 1: 0 records sent, 1 received"),
    ],
)
def test_each_way_of_coming_back_wrong_is_named(
    spoil: Callable[[list[Received]], list[Received]], said: str
) -> None:
    samples = [Sample(None, b"v0"), Sample(b"k", None), Sample(b"k", b"v2", (("a", b"1"), ("b", b"2")))]
    assert said in "\n".join(differences(samples, spoil(returned(samples)), TRAITS, 0))


def test_a_time_of_the_clients_own_must_be_of_today() -> None:
    samples = tombstone_samples(TRAITS)
    traits = Traits(sets_timestamp=False)
    assert differences(samples, returned(samples), traits, samples[0].timestamp_ms) == []
    assert differences(samples, returned(samples), traits, samples[0].timestamp_ms + 3_600_000)
