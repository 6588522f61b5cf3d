"""Leader epochs: the rules by example, and all of them against a list that says which epoch wrote each offset."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blumfeld.log.checkpoints import MalformedFile
from blumfeld.log.leader_epochs import UNKNOWN_END, LeaderEpochCache, truncation_offset
from blumfeld.spi.leader_epochs import EpochEnd, EpochEntry


def cache(*entries: tuple[int, int]) -> LeaderEpochCache:
    return LeaderEpochCache(EpochEntry(*entry) for entry in entries)


def test_the_first_batch_of_an_epoch_is_news_and_the_second_is_not() -> None:
    epochs = LeaderEpochCache()
    assert epochs.assign(3, 10)
    assert not epochs.assign(3, 15)
    assert epochs.entries == [(3, 10)]


def test_a_newer_word_drops_what_it_contradicts() -> None:
    epochs = cache((0, 0), (2, 10), (4, 20))
    assert epochs.assign(3, 10)
    assert epochs.entries == [(0, 0), (3, 10)]


def test_an_earlier_start_of_the_same_epoch_counts() -> None:
    epochs = cache((0, 0), (2, 10))
    assert epochs.assign(2, 5)
    assert epochs.entries == [(0, 0), (2, 5)]


@pytest.mark.parametrize("entry", [(-1, 0), (0, -1)])
def test_nothing_negative_is_assigned(entry: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="can't start"):
        LeaderEpochCache().assign(*entry)


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [(-1, (-1, -1)), (0, (0, 5)), (1, (1, 10)), (2, (2, 20)), (3, (2, 20)), (4, (4, 25)), (5, (-1, -1))],
)
def test_end_offset_for_follows_kafka(epoch: int, answer: tuple[int, int]) -> None:
    """Epoch 0 is older than all here: it is answered as itself, with the start of the first above."""
    assert cache((1, 5), (2, 10), (4, 20)).end_offset_for(epoch, 25) == answer


def test_an_empty_cache_knows_nothing() -> None:
    epochs = LeaderEpochCache()
    assert epochs.end_offset_for(0, 10) == UNKNOWN_END
    assert epochs.latest_epoch == -1
    assert epochs.epoch_for_offset(3) == -1


def test_a_log_that_starts_inside_an_epoch_keeps_that_epoch() -> None:
    epochs = cache((0, 0), (2, 10), (4, 20))
    assert epochs.truncate_from_start(15)
    assert epochs.entries == [(2, 15), (4, 20)]
    assert not epochs.truncate_from_start(15)


def test_a_log_cut_at_the_start_of_an_epoch_forgets_it() -> None:
    epochs = cache((0, 0), (2, 10))
    assert epochs.truncate_from_end(10)
    assert epochs.entries == [(0, 0)]
    assert not epochs.truncate_from_end(10)


def test_the_checkpoint_is_kafkas_text() -> None:
    assert cache((0, 0), (7, 42)).encode() == b"0\n2\n0 0\n7 42\n"
    assert LeaderEpochCache.decode(b"0\n2\n0 0\n7 42\n").entries == [(0, 0), (7, 42)]


@pytest.mark.parametrize("line", ["1", "1 2 3", "a 1", "-1 0", "1 -2"])
def test_a_malformed_line_is_named(line: str) -> None:
    with pytest.raises(MalformedFile, match=r"leader-epoch-checkpoint: line 4: .* should be an epoch"):
        LeaderEpochCache.decode(f"0\n2\n0 0\n{line}\n".encode())


epoch_steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 3), st.integers(1, 4)),
        st.tuples(st.just("cut"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("start"), st.integers(0, 30), st.just(0)),
    ),
    max_size=40,
)


@given(epoch_steps)
def test_it_agrees_with_a_list_of_every_offsets_epoch(steps: list[tuple[str, int, int]]) -> None:
    epochs, log, start = LeaderEpochCache(), list[int](), 0
    for step, value, count in steps:
        if step == "append":
            epoch = (log[-1] if log else 0) + value
            epochs.assign(epoch, len(log))
            log += [epoch] * count
        elif step == "cut":
            cut = max(start, value)
            if cut < len(log):
                del log[cut:]
                epochs.truncate_from_end(cut)
        else:
            start = max(start, min(value, len(log)))
            epochs.truncate_from_start(start)
    for offset in range(start, len(log)):
        assert epochs.epoch_for_offset(offset) == log[offset]
    assert epochs.entries == sorted(set(epochs.entries))
    assert LeaderEpochCache.decode(epochs.encode()).entries == epochs.entries
    for epoch in sorted(set(log[start:])):
        end = max(offset for offset in range(start, len(log)) if log[offset] == epoch) + 1
        if epoch == epochs.latest_epoch:
            end = len(log)
        assert epochs.end_offset_for(epoch, len(log)) == (epoch, end)


@pytest.mark.parametrize(
    ("theirs", "ours", "end", "expected", "why"),
    [
        ((3, 10), (3, 14), 20, 10, "both have epoch 3; the leader's ends first"),
        ((3, 14), (3, 10), 20, 10, "both have epoch 3; ours ends first"),
        ((3, 10), (2, 5), 20, 5, "epoch 3 is unknown here: what came after epoch 2 goes"),
        ((3, 4), (2, 5), 20, 5, "the next fetch names epoch 2, and the leader tells where that ends"),
        ((3, 10), (-1, -1), 20, 10, "none of our epochs is as old: the leader's end counts"),
        ((3, 30), (-1, -1), 20, 20, "never beyond our end"),
        ((3, 30), (3, 30), 20, 20, "never beyond our end"),
    ],
)
def test_where_to_truncate(
    theirs: tuple[int, int], ours: tuple[int, int], end: int, expected: int, why: str
) -> None:
    assert truncation_offset(EpochEnd(*theirs), EpochEnd(*ours), end) == expected, why
