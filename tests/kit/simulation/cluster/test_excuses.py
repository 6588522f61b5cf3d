"""A partition is excused if nobody that the controller trusts is left, and its last leader lost its cache."""

from __future__ import annotations

from itertools import count

import pytest

from blumfeld.spi.cluster import PartitionImage
from blumfeld.spi.storage import TopicPartition
from blumfeld_kit.simulation.clients.oracle import PartitionOracle
from blumfeld_kit.simulation.cluster.excuses import Excuses

AT = TopicPartition("work", 0)


EPOCHS = count(0, 2)
"""By default a change lies between two looks that no look has seen."""


def image(
    leader: int,
    *isr: int,
    elr: tuple[int, ...] = (),
    last: tuple[int, ...] = (),
    epoch: int | None = None,
    recovery: int = 0,
) -> PartitionImage:
    return PartitionImage(
        partition=0,
        replicas=(1, 2, 3),
        isr=isr,
        leader=leader,
        leader_epoch=0,
        partition_epoch=next(EPOCHS) if epoch is None else epoch,
        leader_recovery_state=recovery,
        eligible_leader_replicas=elr,
        last_known_elr=last,
    )


def three() -> Excuses:
    excuses = Excuses()
    for node_id in (1, 2, 3):
        excuses.registered(node_id, node_id)
    excuses.placed(AT, image(1, 1, 2, 3))
    return excuses


LOST, KILLED = True, False


@pytest.mark.parametrize(
    ("placed", "ends", "is_excused"),
    [
        pytest.param(None, {1: LOST, 2: LOST}, False, id="one disk kept everything"),
        pytest.param(None, {1: LOST, 2: LOST, 3: LOST}, True, id="none did"),
        pytest.param(image(1, 1, 2), {1: LOST, 2: LOST}, True, id="a follower that lost its place"),
        pytest.param(None, {1: KILLED, 2: KILLED, 3: KILLED}, False, id="processes that were killed"),
        # The controller takes a killed replica for one that lost its cache, and elects the last leader (KIP-966).
        pytest.param(image(1, 1, elr=(3,)), {3: KILLED, 1: LOST}, True, id="the last leader lost its cache"),
        pytest.param(image(1, 1, elr=(3,)), {3: LOST, 1: KILLED}, False, id="the last leader was killed"),
    ],
)
def test_a_partition_is_excused_by_the_ends_of_those_that_have_everything(
    placed: PartitionImage | None, ends: dict[int, bool], is_excused: bool
) -> None:
    excuses = three()
    if placed is not None:
        excuses.placed(AT, placed)
    for node_id, cache_lost in ends.items():
        excuses.ended(node_id, cache_lost=cache_lost)
    assert excuses.excused() == [AT] * is_excused


def test_a_kill_of_the_whole_isr_may_forget_where_the_log_starts() -> None:
    """Its checkpoint is written once in a while, as in Kafka."""
    excuses, it = three(), PartitionOracle("work-0")
    it.deleted_to(7, sent_s=1.0)
    excuses.ended(1, cache_lost=False)
    excuses.ended(2, cache_lost=False)
    assert excuses.start_excused() == []
    excuses.ended(3, cache_lost=False)
    assert excuses.start_excused() == [AT]
    it.excuse_start(2.0)
    assert it.deleted_for_sure == 0
    it.deleted_to(8, sent_s=1.9)
    assert it.deleted_for_sure == 0, "its answer was under way"
    it.deleted_to(9, sent_s=2.1)
    assert it.deleted_for_sure == 9


def test_a_replica_that_the_controller_forgets_has_everything_all_the_same() -> None:
    """It left the ISR when the ISR became too small, so nothing was committed without it."""
    excuses = Excuses(min_insync=2)
    excuses.placed(AT, image(1, 1, 2, epoch=5))
    excuses.placed(AT, image(1, 1, epoch=6))
    for _ in range(2):
        excuses.ended(1, cache_lost=True)
        excuses.placed(AT, image(1, 1, epoch=6))
        assert excuses.excused() == []
    excuses.ended(2, cache_lost=True)
    assert excuses.excused() == [AT]


def test_an_election_that_may_lose_records_begins_anew() -> None:
    excuses = Excuses(min_insync=2)
    excuses.placed(AT, image(1, 1, 2, epoch=5))
    excuses.placed(AT, image(1, 1, epoch=6, recovery=1))
    excuses.ended(1, cache_lost=True)
    assert excuses.excused() == [AT]


def test_a_leader_that_no_look_has_seen_is_the_last_one_all_the_same() -> None:
    excuses = three()
    excuses.placed(AT, image(1, 1, 2))
    excuses.ended(2, cache_lost=True)
    excuses.ended(1, cache_lost=False)
    assert excuses.excused() == []
    excuses.placed(AT, image(-1, elr=(1,), last=(2,)))
    assert excuses.excused() == [AT]


def test_the_excuse_ends_when_the_next_process_comes_in() -> None:
    excuses = three()
    for node_id in (1, 2, 3):
        excuses.ended(node_id, cache_lost=True)
    excuses.registered(1, 40)
    assert excuses.excused() == [AT]
    excuses.placed(AT, image(-1))
    assert excuses.excused() == [AT]
    excuses.placed(AT, image(1, 1))
    assert excuses.excused() == []
    excuses.placed(AT, image(1, 1, 2))
    excuses.ended(1, cache_lost=True)
    assert excuses.excused() == [AT], "the second one hasn't come back: it is in an old image only"


def test_an_epoch_that_is_learnt_late_is_of_the_process_that_ended() -> None:
    excuses = three()
    excuses.ended(1, cache_lost=True)
    excuses.registered(1, 40)
    excuses.still_down(1)
    assert not excuses.came_after(1, 40)
    assert excuses.came_after(1, 41)
    assert excuses.came_after(2, 2)


def without_eligible() -> Excuses:
    """As with a ZooKeeper: there are no eligible leader replicas, and each registration is seen."""
    excuses = Excuses(has_eligible=False)
    for node_id in (1, 2, 3):
        excuses.registered(node_id, node_id)
    excuses.placed(AT, image(1, 1, 2), [1, 2])
    return excuses


@pytest.mark.parametrize(
    ("ends", "is_excused"),
    [
        pytest.param({1: LOST}, False, id="a follower has everything"),
        pytest.param({1: LOST, 2: KILLED}, True, id="either may be elected"),
        pytest.param({1: KILLED, 2: KILLED}, False, id="killed processes keep their cache"),
    ],
)
def test_without_eligible_replicas_any_member_that_lost_its_cache_may_be_elected(
    ends: dict[int, bool], is_excused: bool
) -> None:
    excuses = without_eligible()
    for node_id, cache_lost in ends.items():
        excuses.ended(node_id, cache_lost=cache_lost)
    assert bool(excuses.excused()) is is_excused


def test_the_last_member_of_an_isr_that_came_again_counts_when_the_isr_is_written_anew() -> None:
    excuses = without_eligible()
    excuses.placed(AT, image(1, 1), [1])
    excuses.ended(1, cache_lost=True)
    excuses.registered(1, 9)
    excuses.placed(AT, image(-1, 1), [])
    assert excuses.excused(), "the state is of the process before"
    excuses.placed(AT, image(1, 1), [1])
    assert not excuses.excused()
