"""When targets are computed, and how they come into the log."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import attrs
import pytest

from blumfeld.spi.assignors import Assigned, Assignment, AssignmentSpec, AssignorError, ConsumerAssignor
from blumfeld.spi.cluster import BrokerImage, PartitionImage, TopicImage
from blumfeld.spi.groups import CoordinatorRecord
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from blumfeld_groups_kip848.assignors import bundled_assignors
from blumfeld_groups_kip848.edit import Edit
from blumfeld_groups_kip848.group import ConsumerGroup, Member
from blumfeld_groups_kip848.protocol import ConsumerGroupProtocol
from blumfeld_groups_kip848.targets.assignment_spec import assignment_spec
from blumfeld_groups_kip848.targets.computation import (
    BYTES_PER_DECISION,
    MEMBERS_PER_DECISION,
    Targets,
)
from tests.coordinator.fakes import FakeImage, topic_id
from tests.coordinator.groups_fixture import Groups

T = topic_id("t")
INTERVAL_MS = 1000


class Settings:
    """The part of ``GroupSettings`` that targets read."""

    def __init__(
        self, assignors: Sequence[str] = ("uniform", "range"), interval_ms: int = INTERVAL_MS
    ) -> None:
        self.assignors = tuple(assignors)
        self.interval_ms = interval_ms

    def assignment_interval_ms(self, group_id: str) -> int:
        return self.interval_ms


class Scene:
    """One group, its targets, the timers that are set, and what each decision wrote."""

    def __init__(
        self,
        topics: dict[str, int],
        assignors: Sequence[ConsumerAssignor] = bundled_assignors(),
        offered: Sequence[str] | None = None,
    ) -> None:
        self.image = FakeImage(topics)
        self.settings = Settings(offered or [assignor.name for assignor in assignors])
        self.targets = Targets(assignors, self.settings, lambda: self.image)  # type: ignore[arg-type]
        self.group = ConsumerGroup("g")
        self.now_ms = 100_000
        self.timers: dict[tuple[str, ...], tuple[int, Any]] = {}
        self.decisions: list[list[CoordinatorRecord]] = []

    def change(self, *joining: Member, leaving: Sequence[str] = (), later: bool = False) -> None:
        """A decision: members come or go, the group's epoch goes up, and its target is to follow."""
        edit = Edit(self.group, self.now_ms)
        for member in joining:
            edit.put_member(member)
        for member_id in leaving:
            edit.remove_member(member_id)
        edit.put_epoch(self.group.epoch + 1, 0)
        (self.targets.update_later if later else self.targets.update)(edit)
        self.decide(edit)

    def ask(self) -> None:
        """A heartbeat that changes nothing."""
        edit = Edit(self.group, self.now_ms)
        self.targets.update(edit)
        self.decide(edit)

    def decide(self, edit: Edit) -> None:
        self.group = edit.group
        self.decisions.append(edit.records)
        for order in edit.timers:
            self.timers.pop(order.key, None)
            if order.delay_ms is not None:
                self.timers[order.key] = (self.now_ms + order.delay_ms, order.command)

    def fire(self) -> Any:
        """The one timer that is set, at its time."""
        ((key, (at_ms, command)),) = self.timers.items()
        del self.timers[key]
        self.now_ms = max(self.now_ms, at_ms)
        edit = Edit(self.group, self.now_ms)
        self.targets.command(command, edit)
        self.decide(edit)
        return command

    def settle(self) -> int:
        """Fire until nothing is left to do; how often."""
        fired = 0
        while self.timers:
            assert fired < 10_000
            fired += 1
            self.fire()
        return fired


def reader(
    member_id: str, *topics: str, assignor: str | None = None, instance_id: str | None = None
) -> Member:
    return Member(
        member_id, subscribed_topics=topics or ("t",), server_assignor=assignor, instance_id=instance_id
    )


def readers(count: int) -> list[Member]:
    return [reader(f"m{nth:04}") for nth in range(count)]


def everything(group: ConsumerGroup) -> list[tuple[bytes, int]]:
    return sorted(
        (topic, partition)
        for assigned in group.targets.values()
        for topic, partitions in assigned.items()
        for partition in partitions
    )


class TestSmallGroup:
    def test_what_is_due_when_all_have_left_comes_to_nothing(self) -> None:
        scene = Scene({"t": 2})
        scene.change(reader("a"))
        scene.change(reader("b"))
        scene.change(leaving=["a", "b"])
        assert scene.settle() == 1
        assert scene.decisions[-1] == []

    def test_a_clock_that_was_set_back_keeps_nobody_waiting(self) -> None:
        scene = Scene({"t": 2})
        scene.change(reader("a"))
        scene.now_ms -= 50_000
        scene.change(reader("b"))
        assert scene.group.target_epoch == 2


class TestWhichAssignor:
    @pytest.mark.parametrize(
        ("preferred", "name"),
        [
            ([None, None], "uniform"),
            (["range", None], "range"),
            (["range", "range", "uniform"], "range"),
            (["range", "uniform"], "uniform"),
            (["gone", "gone", "range"], "range"),
        ],
    )
    def test_most_members_decide_among_those_that_are_offered(
        self, preferred: list[str | None], name: str
    ) -> None:
        scene = Scene({})
        scene.change(*(reader(f"m{nth}", assignor=assignor) for nth, assignor in enumerate(preferred)))
        assert scene.targets.assignor_of(scene.group) == name

    def test_the_first_that_is_offered_is_the_default(self) -> None:
        assert Scene({}, offered=["range", "uniform"]).targets.assignor_of(ConsumerGroup("g")) == "range"


class TestLargeGroup:
    MEMBERS = 100
    PARTITIONS = 1000

    def scene(self) -> Scene:
        scene = Scene({"t": self.PARTITIONS})
        scene.change(*readers(self.MEMBERS))
        return scene

    def test_its_records_come_in_several_decisions_the_epoch_last(self) -> None:
        scene = self.scene()
        scene.settle()
        written = [decision for decision in scene.decisions[1:] if decision]
        assert len(written) == self.MEMBERS // MEMBERS_PER_DECISION + 1
        assert all(len(decision) <= MEMBERS_PER_DECISION + 1 for decision in written)
        assert [scene.group.target_epoch, len(written[-1])] == [1, self.MEMBERS % MEMBERS_PER_DECISION + 1]

    def test_a_decision_is_bounded_in_bytes(self) -> None:
        scene = Scene({"t": 100_000})
        scene.change(*readers(4))
        scene.settle()
        sizes = [sum(len(record.value or b"") for record in decision) for decision in scene.decisions[1:]]
        assert max(sizes) <= BYTES_PER_DECISION + 25_000 * 4 + 100

    def test_it_begins_anew_when_the_group_has_changed(self) -> None:
        """Before anything is written: then nobody waits an interval for what is known to be wrong."""
        scene = self.scene()
        scene.fire()
        scene.change(reader("late"))
        scene.settle()
        assert scene.group.target_epoch == 2
        assert scene.group.targets["late"] != {}
        assert scene.now_ms == 100_000

    def test_members_that_come_faster_than_it_ends_starve_nobody(self) -> None:
        scene = self.scene()
        for nth in range(200):
            scene.fire()
            scene.change(reader(f"n{nth}"))
            if scene.group.target_epoch:
                break
        assert 0 < scene.group.target_epoch < scene.group.epoch
        scene.settle()
        assert scene.group.target_epoch == scene.group.epoch

    def test_who_leaves_while_it_is_written_gets_nothing(self) -> None:
        scene = self.scene()
        while not scene.group.targets:
            scene.fire()
        scene.change(leaving=["m0099"], later=True)
        while scene.group.target_epoch == 0:
            scene.fire()
        assert "m0099" not in scene.group.targets
        assert scene.group.target_epoch == 1
        scene.settle()
        assert scene.group.target_epoch == 2
        assert everything(scene.group) == [(T, nth) for nth in range(self.PARTITIONS)]

    def test_a_static_member_that_comes_back_under_another_id_gets_what_was_dealt_to_it(self) -> None:
        scene = Scene({"t": self.PARTITIONS})
        scene.change(*readers(self.MEMBERS), reader("was", instance_id="i"))
        scene.fire()
        edit = Edit(scene.group, scene.now_ms)
        edit.remove_member("was")
        edit.put_member(reader("is", instance_id="i"))
        scene.decide(edit)
        scene.settle()
        assert scene.group.target_epoch == 1
        assert scene.group.targets["is"] != {}
        assert everything(scene.group) == [(T, nth) for nth in range(self.PARTITIONS)]


class Broken:
    """An assignor that a stranger brought."""

    name = "broken"

    def __init__(self, error: Exception | None = None, gives: Assignment | None = None) -> None:
        self.error = error
        self.gives = gives

    def assign(self, spec: AssignmentSpec) -> Generator[int, None, Assignment]:
        yield 1
        if self.error is not None:
            raise self.error
        assert self.gives is not None
        return self.gives


def mine(*partitions: int, topic: bytes = T) -> Assigned:
    return {topic: frozenset(partitions)}


class TestAssignorThatFails:
    @pytest.mark.parametrize(
        ("broken", "why"),
        [
            (Broken(AssignorError("no racks")), "broken: no racks"),
            (Broken(ZeroDivisionError()), "broken: ZeroDivisionError"),
            (Broken(gives={"nobody": mine(0)}), "nobody, who is no member"),
            (Broken(gives={"a": mine(0, topic=b"?" * 16)}), "doesn't subscribe to"),
            (Broken(gives={"a": mine(0), "b": mine(1, 0)}), "t to two members"),
            (Broken(gives={"a": mine(2)}), "t that doesn't exist"),
            (Broken(gives={"a": mine(-1)}), "t that doesn't exist"),
        ],
    )
    def test_who_asked_is_told_and_nothing_is_written(self, broken: Broken, why: str) -> None:
        scene = Scene({"t": 2}, [broken])
        with pytest.raises(BrokerError, match=why) as refusal:
            scene.change(reader("a"), reader("b"))
        assert refusal.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert scene.decisions == []

    def test_of_a_large_group_the_next_heartbeat_is_told_and_it_is_tried_again(self) -> None:
        broken = Broken(AssignorError("no racks"))
        scene = Scene({"t": 1000}, [broken])
        scene.change(*readers(2))
        while scene.now_ms == 100_000:
            scene.fire()
            if any(at_ms > scene.now_ms for at_ms, _ in scene.timers.values()):
                break
        with pytest.raises(BrokerError, match="no racks"):
            scene.ask()
        broken.error, broken.gives = None, {"m0000": mine(*range(1000))}
        scene.settle()
        assert scene.group.target_epoch == 1
        scene.ask()

    def test_a_new_epoch_is_tried_at_once(self) -> None:
        broken = Broken(AssignorError("no racks"))
        scene = Scene({"t": 1000}, [broken])
        scene.change(*readers(2))
        scene.fire()
        broken.error, broken.gives = None, {}
        scene.change(reader("c"))
        scene.settle()
        assert scene.group.target_epoch == 2

    def test_who_leaves_is_not_kept_by_it(self) -> None:
        scene = Scene({"t": 2}, [Broken(AssignorError("no racks"))])
        scene.change(reader("a"), reader("b"), later=True)
        scene.fire()
        scene.change(leaving=["a"], later=True)
        assert set(scene.group.members) == {"b"}


class TestTooLarge:
    """A target that is more than a record may be: Kafka refuses the heartbeat that brings it about."""

    def groups(self, partitions: int) -> Groups:
        groups = Groups(
            {"group.consumer.assignment.interval.ms": 0, "group.consumer.min.assignment.interval.ms": 0},
            protocols=[ConsumerGroupProtocol()],
            topics={"t": partitions},
        )
        groups.log.record_bytes_max = 400
        return groups

    def beat(self, groups: Groups, epoch: int = 0) -> Any:
        joins = epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=epoch,
            rebalance_timeout_ms=60_000 if joins else -1,
            subscribed_topic_names=["t"] if joins else None,
            topic_partitions=[] if joins else None,
        )
        return groups.ask(request)

    def test_a_small_group_is_refused_and_joins_when_there_is_room(self) -> None:
        groups = self.groups(300)
        assert self.beat(groups).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        groups.log.record_bytes_max = 4_000
        assert self.beat(groups).member_epoch == 2
        assert len(groups.shards) == 1, "nothing was dropped"

    def test_a_large_one_is_told_with_its_next_heartbeat_and_it_is_tried_again(self) -> None:
        groups = self.groups(1_000)
        epoch = self.beat(groups).member_epoch
        groups.runtime.advance(100)
        assert self.beat(groups, epoch).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        groups.log.record_bytes_max = 10_000
        groups.runtime.advance(2_000)
        answer = self.beat(groups, epoch)
        assert [len(topic.partitions) for topic in answer.assignment.topic_partitions] == [1_000]
        assert len(groups.shards) == 1, "nothing was dropped"

    def test_members_do_not_hear_of_a_log_that_takes_nothing_for_a_moment(self) -> None:
        """Clients end with UNKNOWN_SERVER_ERROR: for a replica that lagged, all members of a large group did."""
        groups = self.groups(1_000)
        groups.log.record_bytes_max = 10_000
        epoch = self.beat(groups).member_epoch
        groups.log.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
        groups.runtime.advance(100)
        assert groups.log.refuse is None, "the target was to be written"
        assert self.beat(groups, epoch).error_code == ErrorCode.NONE
        groups.runtime.advance(2_000)
        answer = self.beat(groups, epoch)
        assert [len(topic.partitions) for topic in answer.assignment.topic_partitions] == [1_000]

    def test_a_target_that_was_refused_is_tried_again_without_a_heartbeat(self) -> None:
        groups = self.groups(1_000)
        groups.log.record_bytes_max = 10_000
        epoch = self.beat(groups).member_epoch
        groups.log.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
        groups.runtime.advance(2_000)
        answer = self.beat(groups, epoch)
        assert [len(topic.partitions) for topic in answer.assignment.topic_partitions] == [1_000]


class TestRacks:
    def test_the_assignor_sees_where_replicas_are(self) -> None:
        seen: list[AssignmentSpec] = []

        class Looking(Broken):
            def assign(self, spec: AssignmentSpec) -> Generator[int, None, Assignment]:
                seen.append(spec)
                yield 1
                return {}

        scene = Scene({}, [Looking()])
        for broker_id, rack in ((1, "north"), (2, "south"), (3, None)):
            scene.image.brokers[broker_id] = BrokerImage(
                broker_id=broker_id, epoch=1, incarnation_id=b"", endpoints=(), rack=rack
            )
        scene.image.topics["t"] = TopicImage(
            name="t", topic_id=T, partitions={n: _partition(n, at) for n, at in enumerate([(1, 2), (2, 3)])}
        )
        scene.change(attrs.evolve(reader("a"), rack_id="north"))
        assert seen[0].topics[T].racks == (frozenset({"north", "south"}), frozenset({"south"}))
        assert seen[0].members["a"].rack_id == "north"

    def test_members_without_a_rack_cost_no_look_at_replicas(self) -> None:
        spec = _spec_of(Scene({"t": 3}))
        assert spec.topics[T].racks == ()


def _partition(partition: int, replicas: tuple[int, ...]) -> PartitionImage:
    return PartitionImage(
        partition=partition, replicas=replicas, isr=replicas, leader=1, leader_epoch=0, partition_epoch=0
    )


def _spec_of(scene: Scene) -> AssignmentSpec:
    edit = Edit(scene.group, 0)
    edit.put_member(reader("a"))
    steps = assignment_spec(edit.group, scene.image)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            spec: AssignmentSpec = end.value
            return spec
