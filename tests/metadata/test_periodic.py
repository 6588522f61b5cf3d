"""What the controller does by itself: preferred leaders, unclean elections, take-over, and brokers that are dead."""

from __future__ import annotations

import pytest

from blumfeld.config.values import BrokerConfig
from blumfeld.metadata.controller import Controller
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.partitions import elections
from blumfeld.spi.cluster import TOPIC_RESOURCE
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.metadata_records import ConfigRecord, NoOpRecord
from tests.metadata.driven import Driven, replayed


def leaders(driven: Driven, topic: str) -> list[int]:
    """Leaders of a topic's partitions."""
    return [p.leader for p in driven.image.topics[topic].partitions.values()]


def preferred(driven: Driven, topic: str) -> list[int]:
    """First replicas of a topic's partitions."""
    return [p.replicas[0] for p in driven.image.topics[topic].partitions.values()]


@pytest.fixture
def driven() -> Driven:
    return Driven()


@pytest.mark.parametrize("slice_records", [2, 128])
def test_leadership_goes_back_to_the_preferred_replicas(
    slice_records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elections, "SLICE_RECORDS", slice_records)
    driven = Driven()
    epochs = driven.join(1, 2, 3)
    driven.create("t", 9, 3)
    driven.create("u", 3, 3)
    wanted = preferred(driven, "t")
    driven.beat(1, epochs[0], want_fence=True)
    assert 1 not in leaders(driven, "t")
    driven.beat(1, epochs[0])
    driven.carry_out(driven.controller.balance(driven.moment()))
    assert 1 not in leaders(driven, "t"), "it is not in sync"
    for topic, count in (("t", 9), ("u", 3)):
        for number in range(count):
            isr = driven.partition(topic, number).isr
            if 1 not in isr:
                assert driven.alter_isr(topic, [*isr, 1], number) == 0
    driven.carry_out(driven.controller.balance(driven.moment()))
    assert leaders(driven, "t") == wanted
    assert leaders(driven, "u") == preferred(driven, "u")
    before = len(driven.log)
    driven.carry_out(driven.controller.balance(driven.moment()))
    assert len(driven.log) == before
    assert replayed(driven.log) == driven.image


def test_a_topic_that_now_allows_it_gets_an_unclean_leader(driven: Driven) -> None:
    first, second = driven.join(1, 2)
    driven.create("t", 1, 2)
    leader = driven.partition("t").leader
    epoch, other_epoch = (first, second) if leader == 1 else (second, first)
    driven.beat(3 - leader, other_epoch, want_fence=True)
    driven.beat(leader, epoch, want_fence=True)
    driven.beat(3 - leader, other_epoch)
    driven.carry_out(driven.controller.elect_unclean(driven.moment()))
    assert driven.partition("t").leader == -1
    key = "unclean.leader.election.enable"
    driven.place([ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="t", name=key, value="true")])
    driven.carry_out(driven.controller.elect_unclean(driven.moment()))
    assert (driven.partition("t").leader, driven.partition("t").leader_recovery_state) == (3 - leader, 1)


def test_the_intervals_are_kafkas_keys() -> None:
    def intervals(**config: object) -> dict[str, float]:
        keys = {name.replace("_", "."): value for name, value in config.items()}
        controller = Driven(keys).controller
        return {command.name: command.interval_ms for command in controller.periodic()}

    assert intervals() == {
        "preferred leaders": 300_000,
        "unclean elections": 300_000,
        "no-op records": 500,
    }
    others = {
        "leader_imbalance_check_interval_seconds": 7,
        "unclean_leader_election_interval_ms": 8,
        "metadata_max_idle_interval_ms": 40,
    }
    assert intervals(**others) == {"preferred leaders": 7_000, "unclean elections": 8, "no-op records": 40}
    off = {"auto_leader_rebalance_enable": False, "metadata_max_idle_interval_ms": 0}
    assert intervals(**off) == {"unclean elections": 300_000}


def test_a_no_op_moves_the_end_of_the_log_and_nothing_else(driven: Driven) -> None:
    driven.join(1)
    before = driven.image.copy()
    driven.carry_out(driven.controller.noop(driven.moment()))
    assert isinstance(driven.log[-1], NoOpRecord)
    assert driven.image == before


def test_no_op_records_begin_with_the_metadata_version() -> None:
    """A log without one has no record that says how the others are to be read."""
    controller = Controller(MetadataImage("cluster"), BrokerConfig({}))
    assert controller.noop(Driven().moment()).records == []


def taken_over(
    driven: Driven,
    own: int | None,
    incarnation: bytes | None = None,
    silent: tuple[int, float] | None = None,
) -> Driven:
    """The same cluster under the next controller, whose clock is another."""
    after = Driven.__new__(Driven)
    after.__dict__.update(driven.__dict__)
    after.controller = Controller(driven.image.copy(), driven.controller.state.config)
    after._now_ms = 1_000_000.0
    after.controller.take_over(after.now_ms, own, incarnation, silent)
    return after


def test_the_broker_beside_the_former_controller_has_been_silent_for_as_long_as_that_one(
    driven: Driven,
) -> None:
    driven.join(1, 2)
    after = taken_over(driven, None, silent=(2, 1_000_000.0 - 2_300))
    after.now_ms += 9_000 - 2_300 - 1
    assert after.expire() == []
    after.now_ms += 1
    assert after.expire() == [2]


def test_a_broker_of_this_node_that_never_comes_back_is_fenced(driven: Driven) -> None:
    driven.join(1)
    after = taken_over(driven, 1, b"this process....")
    after.now_ms += 9_000
    assert after.expire() == [1]


def test_a_controlled_shutdown_goes_on_under_the_next_controller(driven: Driven) -> None:
    """The other brokers must have read as far as that controller found the log: where the shutdown began it can't
    tell.
    """
    first, second, third = driven.join(1, 2, 3)
    driven.create("t", 3, 3)
    driven.beat(1, first, want_shut_down=True)
    after = taken_over(driven, 2, driven.image.brokers[2].incarnation_id)
    end = len(after.log)
    assert not after.beat(1, first, want_shut_down=True).should_shut_down
    after.beat(2, second, current_metadata_offset=end)
    after.beat(3, third, current_metadata_offset=end - 2)
    assert not after.beat(1, first, want_shut_down=True).should_shut_down
    after.beat(3, third, current_metadata_offset=end - 1)
    assert after.beat(1, first, want_shut_down=True).should_shut_down


def test_two_controlled_shutdowns_beside_each_other(driven: Driven) -> None:
    """A broker that shuts down itself is not waited for."""
    first, second, third = driven.join(1, 2, 3)
    driven.create("t", 6, 3)
    assert not driven.beat(1, first, want_shut_down=True).should_shut_down
    assert not driven.beat(2, second, want_shut_down=True).should_shut_down
    assert set(leaders(driven, "t")) == {3}
    assert not driven.beat(1, first, want_shut_down=True).should_shut_down
    driven.beat(3, third)
    assert driven.beat(1, first, want_shut_down=True).should_shut_down
    assert driven.beat(2, second, want_shut_down=True).should_shut_down
    assert {p.isr for p in driven.image.topics["t"].partitions.values()} == {(3,)}


def test_the_next_process_of_a_dead_one_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The news of the death may be late, or its work may be half done."""
    monkeypatch.setattr(elections, "SLICE_RECORDS", 2)
    driven = Driven()
    epochs = driven.join(1, 2)
    driven.create("t", 6, 2)
    part = driven.controller.fence_dead(1, epochs[0], driven.moment())
    driven.place(part.records)
    assert part.rest is not None
    driven.now_ms += 9_000
    again = driven.register(1, incarnation=2)
    assert not driven.beat(1, again).is_fenced
    before = len(driven.log)
    driven.carry_out(part.rest(driven.controller.state, driven.moment()))
    driven.carry_out(driven.controller.fence_dead(1, epochs[0], driven.moment()))
    assert len(driven.log) == before
    assert not driven.image.brokers[1].fenced


def test_the_heartbeat_of_an_old_process_keeps_nobody_alive(driven: Driven) -> None:
    old, second = driven.join(1, 2)
    driven.now_ms += 8_000
    driven.beat(2, second)
    driven.now_ms += 1_000
    new = driven.register(1, incarnation=2)
    driven.beat(1, new)
    for _ in range(9):
        driven.now_ms += 1_000
        driven.beat(2, second)
        assert driven.beat(1, old).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert driven.expire() == [1]
