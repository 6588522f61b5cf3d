"""The ISR rules as formats.md §22 has them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from blumfeld_replication_isr.isr_rules import IsrRules

LAG_MS = 30_000


def rules(
    isr: tuple[int, ...] = (1, 2, 3),
    *,
    replicas: tuple[int, ...] = (1, 2, 3),
    end: int = 10,
    high_watermark: int = 0,
    min_isr: int = 1,
    ineligible: tuple[int, ...] = (),
) -> IsrRules:
    return IsrRules(
        leader_id=1,
        replicas=replicas,
        isr=isr,
        partition_epoch=0,
        min_insync_replicas=min_isr,
        log_end_offset=end,
        high_watermark=high_watermark,
        lag_max_ms=LAG_MS,
        now_ms=0,
        eligible=lambda replica: replica not in ineligible,
    )


def test_alone_in_the_isr_the_high_watermark_is_the_log_end() -> None:
    alone = rules((1,), replicas=(1,))
    assert alone.log_end_moved(12, 0)
    assert alone.high_watermark == 12


def test_the_high_watermark_is_the_lowest_log_end_of_the_isr() -> None:
    three = rules()
    assert not three.follower_fetched(2, 1, 8, 1)
    assert three.follower_fetched(3, 1, 6, 1)
    assert three.high_watermark == 6


def test_a_checkpoint_beyond_the_log_counts_only_up_to_its_end() -> None:
    assert rules(high_watermark=99).high_watermark == 10


def test_it_stands_still_under_min_isr() -> None:
    short = rules((1,), min_isr=2, replicas=(1, 2))
    assert not short.log_end_moved(20, 0)
    assert short.high_watermark == 0


def test_it_waits_for_one_who_is_caught_up_and_about_to_join() -> None:
    joining = rules((1,), replicas=(1, 2))
    joining.follower_fetched(2, 1, 10, 5)
    joining.log_end_moved(12, 6)
    assert joining.high_watermark == 10
    assert joining.expansion(2) == (1, 2)


def test_it_does_not_wait_for_one_who_may_not_join() -> None:
    fenced = rules((1,), replicas=(1, 2), ineligible=(2,))
    fenced.follower_fetched(2, 1, 10, 5)
    fenced.log_end_moved(12, 6)
    assert fenced.high_watermark == 12
    assert fenced.expansion(2) is None


def test_one_below_the_start_of_the_epoch_may_not_join() -> None:
    behind = rules((1,), replicas=(1, 2), high_watermark=4)
    behind.follower_fetched(2, 1, 7, 5)
    assert behind.expansion(2) is None


def test_who_is_not_caught_up_for_long_leaves_the_isr() -> None:
    two = rules((1, 2), replicas=(1, 2))
    assert two.shrinkage(LAG_MS) is None
    assert two.shrinkage(LAG_MS + 1) == (1,)


def test_always_one_fetch_behind_is_caught_up() -> None:
    busy = rules((1, 2), replicas=(1, 2))
    for step in range(1, 10):
        busy.follower_fetched(2, 1, 10 * step, 10_000 * step)
        busy.log_end_moved(10 * (step + 1), 10_000 * step)
    assert busy.shrinkage(100_000) is None


def test_while_a_change_is_in_flight_both_isrs_count_and_no_other_is_proposed() -> None:
    three = rules((1, 2))
    three.follower_fetched(2, 1, 10, 0)
    three.follower_fetched(3, 1, 10, 0)
    grown = three.expansion(3)
    assert grown == (1, 2, 3)
    three.propose(grown)
    assert three.expansion(3) is None
    assert three.shrinkage(10**9) is None
    three.log_end_moved(20, 10**9)
    three.follower_fetched(2, 1, 20, 10**9)
    assert three.high_watermark == 10
    three.settle(None, None, 10**9)
    assert three.maximal_isr == (1, 2)
    assert three.high_watermark == 20


def test_an_older_partition_epoch_changes_nothing() -> None:
    two = rules((1, 2), replicas=(1, 2))
    two.settle((1,), 5, 0)
    two.settle((1, 2), 4, 0)
    assert two.isr == (1,)


Step = st.one_of(
    st.tuples(st.just("end"), st.just(0), st.integers(0, 5)),
    st.tuples(st.just("fetch"), st.sampled_from([2, 3]), st.integers(0, 8)),
    st.tuples(st.just("expand"), st.sampled_from([2, 3]), st.booleans()),
    st.tuples(st.just("shrink"), st.just(0), st.booleans()),
)


@given(st.lists(st.tuples(Step, st.integers(0, 20_000)), max_size=60), st.integers(1, 3))
def test_the_high_watermark_never_goes_back_and_is_on_all_of_the_isr(
    steps: list[tuple[tuple[str, int, int], int]], min_isr: int
) -> None:
    """Whatever happens: everything below the high watermark is on the leader and on every member of the ISR."""
    state = rules(min_isr=min_isr)
    has = {2: 0, 3: 0}
    now, epoch = 0, 0
    for (kind, replica, value), wait_ms in steps:
        now += wait_ms
        before, end = state.high_watermark, state.log_end_offset
        if kind == "end":
            state.log_end_moved(end + value, now)
        elif kind == "fetch":
            has[replica] = min(end, has[replica] + value)
            state.follower_fetched(replica, 1, has[replica], now)
        else:
            wanted = state.expansion(replica) if kind == "expand" else state.shrinkage(now)
            if wanted is not None:
                epoch += 1
                state.propose(wanted)
                state.settle(wanted if value else None, epoch if value else None, now)
        assert state.high_watermark >= before
        assert state.high_watermark <= state.log_end_offset
        assert all(state.high_watermark <= has[r] for r in state.isr if r != 1)
        if len(state.isr) < min_isr:
            assert state.high_watermark == before
