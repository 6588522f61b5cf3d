"""The index broker → partitions against a scan of all, and tables of large topics against dicts (ADR 0021)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from blumfeld.metadata.image.partition_index import NO_LEADER, PartitionIndex, Sweep, all_of, along
from blumfeld.metadata.image.partition_table import CHUNK_PARTITIONS, PartitionTable
from blumfeld.metadata.image.records import image_of
from blumfeld.metadata.image.step import ImageStep
from blumfeld.metadata.partitions import elections, requested_elections
from blumfeld.metadata.partitions.elections import without_broker
from blumfeld.metadata.partitions.partition_change import active_in, partition_change
from blumfeld.spi.cluster import PartitionImage
from blumfeld.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from blumfeld.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from blumfeld.wire.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from blumfeld.wire.schema import Message
from tests.everyday import first
from tests.metadata.cluster_model import ClusterModel
from tests.metadata.driven import Driven, replayed


def scanned(driven: Driven) -> PartitionIndex:
    """The index, made by a look at every partition."""
    index = PartitionIndex()
    for topic in driven.image.topics.values():
        for partition in topic.partitions.values():
            index.put(topic.topic_id, None, partition)
    return index


@pytest.mark.parametrize("seed", first(4, range(12)))
def test_the_index_is_what_a_scan_finds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where decisions are made in parts of three records."""
    monkeypatch.setattr(elections, "SLICE_RECORDS", 3)
    model = ClusterModel(seed, elr=bool(seed % 2), power=False)
    for _ in range(120):
        model.step()
        assert model.driven.image.index == scanned(model.driven)
    image = model.driven.image
    assert image.index.count
    assert replayed(model.driven.log).index == image.copy().index == image.index


def by_scan(driven: Driven, removed: int) -> list[Message]:
    """The records that take a broker out of all partitions, by a look at every partition."""
    state = driven.controller.state
    active = active_in(state.image)
    records: list[Message] = []
    for topic in state.image.topics.values():
        for partition in topic.partitions.values():
            if removed in partition.isr:
                changing = partition_change(
                    state,
                    topic,
                    partition,
                    state.image.topic_config(topic.name, state.image.broker_config(state.config)),
                    lambda broker, directory: broker != removed and active(broker, directory),
                )
                changing.isr = [replica for replica in changing.isr if replica != removed]
                record = changing.record()
                if record is not None:
                    records.append(record)
    return records


def place_of(record: Message) -> tuple[bytes, int]:
    """The partition that a record changes."""
    assert isinstance(record, PartitionChangeRecord)
    return record.topic_id, record.partition_id


@pytest.mark.parametrize("seed", first(4, range(12)))
def test_a_broker_leaves_the_partitions_that_a_scan_finds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ClusterModel(seed, elr=bool(seed % 2), power=False)
    for _ in range(80):
        model.step()
    for broker in model.brokers:
        wanted = sorted(by_scan(model.driven, broker), key=place_of)
        changes, ahead = without_broker(model.driven.controller.state, broker)
        assert ahead is None
        assert sorted(changes, key=place_of) == wanted
    monkeypatch.setattr(elections, "SLICE_RECORDS", 2)
    broker = model.chance.choice(list(model.brokers))
    wanted = sorted(by_scan(model.driven, broker), key=place_of)
    parts: list[Message] = []
    while True:
        changes, ahead = without_broker(model.driven.controller.state, broker)
        model.driven.place(changes)
        parts += changes
        if ahead is None:
            break
        assert len(changes) == 2
    assert sorted(parts, key=place_of) == wanted, "what has changed is not in the index any more"


def three(partitions: int = 10, factor: int = 3) -> tuple[Driven, list[int]]:
    driven = Driven()
    epochs = driven.join(1, 2, 3)
    driven.create("alpha", partitions, factor)
    return driven, epochs


@pytest.mark.parametrize("wants", [{"want_fence": True}, {"want_shut_down": True}])
def test_leaders_move_before_the_fence_and_each_part_checks_the_epoch(
    wants: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker whose next process registers between two parts is not fenced by a heartbeat of its last one."""
    monkeypatch.setattr(elections, "SLICE_RECORDS", 4)
    driven, epochs = three()
    beat = BrokerHeartbeatRequest(broker_id=2, broker_epoch=epochs[1], current_metadata_offset=10**6, **wants)
    part = driven.decide(beat)
    assert part.rest is not None
    assert not part.atomic
    fences = [r for r in part.records if isinstance(r, BrokerRegistrationChangeRecord) and r.fenced]
    assert not fences
    driven.place(part.records)
    driven.now_ms += 60_000
    again = driven.register(2, incarnation=2)
    late = part.rest(driven.controller.state, driven.moment())
    assert isinstance(late.response, BrokerHeartbeatResponse)
    assert late.response.error_code
    assert not late.records
    assert driven.image.brokers[2].epoch == again


def test_a_replica_that_comes_back_between_two_parts_leaves_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elections, "SLICE_RECORDS", 4)
    driven, epochs = three()
    beat = BrokerHeartbeatRequest(
        broker_id=2, broker_epoch=epochs[1], current_metadata_offset=10**6, want_fence=True
    )
    decision = driven.decide(beat)
    driven.place(decision.records)
    number = next(p.partition for p in driven.image.topics["alpha"].partitions.values() if 2 not in p.isr)
    back = PartitionChangeRecord(
        partition_id=number, topic_id=driven.image.topics["alpha"].topic_id, isr=[1, 2, 3]
    )
    driven.place([back])
    while decision.rest is not None:
        decision = decision.rest(driven.controller.state, driven.moment())
        driven.place(decision.records)
    assert driven.image.brokers[2].fenced
    assert not any(2 in p.isr for p in driven.image.topics["alpha"].partitions.values())


def test_a_controller_that_takes_over_elects_what_was_left(monkeypatch: pytest.MonkeyPatch) -> None:
    driven, epochs = three(partitions=30, factor=1)
    driven.beat(1, epochs[0], want_fence=True)
    left = len(list(along(driven.image.index.led(NO_LEADER), all_of(driven.image.index.led(NO_LEADER)))))
    unfence = driven.decide(
        BrokerHeartbeatRequest(broker_id=1, broker_epoch=epochs[0], current_metadata_offset=10**6)
    )
    driven.place(unfence.records[:3])
    taken = driven.controller.elect_left_over(driven.moment())
    assert len(taken.records) == left - 2
    driven.place(taken.records)
    assert not driven.image.index.led(NO_LEADER)
    assert not driven.controller.elect_left_over(driven.moment()).records


@pytest.mark.parametrize("kind", [0, 1])
def test_all_leaders_are_elected_in_parts_as_at_once(kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer() -> tuple[ElectLeadersResponse, list[Message]]:
        driven, epochs = three(partitions=30, factor=2)
        driven.create("beta", 5, 1)
        driven.beat(2, epochs[1], want_fence=True)
        driven.beat(2, epochs[1])
        shown = len(driven.log)
        request = ElectLeadersRequest(election_type=kind, topic_partitions=None)
        return driven.do(request, ElectLeadersResponse), driven.log[shown:]

    whole = answer()
    monkeypatch.setattr(requested_elections, "SLICE_RECORDS", 3)
    monkeypatch.setattr(requested_elections, "SLICE_LOOKS", 7)
    assert answer() == whole


@pytest.mark.parametrize("seed", first(3, range(6)))
def test_a_table_is_a_dict_and_its_past_does_not_change(seed: int) -> None:
    chance = Random(seed)

    def partition(number: int) -> PartitionImage:
        return PartitionImage(
            partition=number,
            replicas=(1,),
            isr=(1,),
            leader=1,
            leader_epoch=chance.randrange(9),
            partition_epoch=0,
        )

    there = {n: partition(n) for n in range(CHUNK_PARTITIONS * 2)}
    table, past = PartitionTable(there), []
    for _ in range(20):
        past.append((table, dict(there)))
        table = table.draft()
        for _ in range(chance.randrange(4)):
            number = chance.choice([chance.randrange(len(there)), len(there), chance.randrange(10**6)])
            table[number] = there[number] = partition(number)
    for old, content in [*past, (table, there)]:
        assert old == content
        assert len(old) == len(content)
        assert sorted(old) == sorted(content)
        assert dict(old.items()) == content
        assert sorted(p.partition for p in old.values()) == sorted(content)
    assert table.get(10**7) is None
    assert -1 not in table


def test_one_change_of_a_large_topic_copies_one_chunk() -> None:
    topic_id = b"t" * 16
    made: list[Message] = [TopicRecord(name="alpha", topic_id=topic_id)]
    made += [
        PartitionRecord(
            partition_id=n, topic_id=topic_id, replicas=[1], isr=[1], leader=1, directories=[b"d" * 16]
        )
        for n in range(CHUNK_PARTITIONS * 3)
    ]
    image = image_of("cluster", made)
    before = image.topics["alpha"]
    assert isinstance(before.partitions, PartitionTable)
    content = dict(before.partitions)
    step = ImageStep(image)
    step.replay(PartitionChangeRecord(partition_id=5, topic_id=topic_id, leader=-1))
    delta = step.finish(1, 1)
    after = image.topics["alpha"].partitions
    assert isinstance(after, PartitionTable)
    assert dict(before.partitions) == content, "a reader keeps its image"
    assert [p.leader for _, p in delta.partitions_changed] == [-1]
    shared = [at for at, chunk in after._chunks.items() if before.partitions._chunks[at] is chunk]
    assert shared == [1, 2]


def test_a_sweep_goes_on_where_it_stopped() -> None:
    masks = {b"a\0\0\0\0": 0b1011, b"a\0\0\0\1": 0b1, b"b\0\0\0\0": 0b110}
    sweep_places = list(along(masks, all_of(masks)))
    assert [(topic, number) for topic, number, _ in sweep_places] == [
        (b"a", 0),
        (b"a", 1),
        (b"a", 3),
        (b"a", CHUNK_PARTITIONS),
        (b"b", 1),
        (b"b", 2),
    ]
    for at, (_, _, sweep) in enumerate(sweep_places):
        assert isinstance(sweep, Sweep)
        assert list(along(masks, sweep)) == sweep_places[at + 1 :]
