"""Decisions on brokers whose znodes come and go, on their controlled shutdown, and on replicas that fail. Pure.

A tree has no fenced brokers: a broker is registered as long as its znode is there. So a broker that goes leaves the
image first, and its leaderships after it; the next controller elects for every broker that isn't registered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from blumfeld.metadata.decision import ControllerDecision, ControllerState, Moment
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.partition_index import NO_LEADER, Sweep, all_of, along
from blumfeld.metadata.image.records import partition_record
from blumfeld.metadata.partitions.directories import LOST_DIRECTORY, MIGRATING_DIRECTORY, directory_of
from blumfeld.metadata.partitions.elections import with_any_broker, without_broker
from blumfeld.metadata.partitions.partition_change import Election, active_in, partition_change
from blumfeld.metadata.slices import SLICE_LOOKS, SLICE_RECORDS
from blumfeld.spi.cluster import PartitionImage, TopicImage
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.broker_heartbeat import BrokerHeartbeatResponse
from blumfeld.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from blumfeld.wire.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from blumfeld.wire.schema import Message

NO_RESPONSE = BrokerHeartbeatResponse()
"""The response of a decision without a request. It means nothing."""
UNKNOWN_BROKER_EPOCH = -1
"""The broker epoch of a request older than KIP-380."""


def nothing(_state: ControllerState, _moment: Moment) -> ControllerDecision:
    """Decide nothing: an event in its turn."""
    return ControllerDecision([], NO_RESPONSE, atomic=False)


def broker_came(
    state: ControllerState, _moment: Moment, *, registration: RegisterBrokerRecord
) -> ControllerDecision:
    """Register a broker. Leaders are elected behind it, by :func:`elect_left_over`.

    A registration of the same epoch is the same process with other listeners.
    """
    known = state.image.brokers.get(registration.broker_id)
    same = known is not None and known.epoch == registration.broker_epoch
    shuts_down = known is not None and same and known.in_controlled_shutdown
    record = replace(registration, in_controlled_shutdown=shuts_down)
    return ControllerDecision([record], NO_RESPONSE, atomic=False)


def broker_went(
    state: ControllerState, _moment: Moment, *, broker_id: int, broker_epoch: int
) -> ControllerDecision:
    """Take a broker out of the image, then out of every leadership and every ISR that keeps another member.

    No later registration of the id may be replayed before the last part.
    """
    broker = state.image.brokers.get(broker_id)
    records: list[Message] = []
    if broker is not None:
        if broker.epoch != broker_epoch:
            return ControllerDecision([], NO_RESPONSE, atomic=False)
        records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker_epoch))
    moved, ahead = without_broker(state, broker_id)
    rest = None if ahead is None else partial(broker_went, broker_id=broker_id, broker_epoch=broker_epoch)
    return ControllerDecision([*records, *moved], NO_RESPONSE, atomic=False, rest=rest)


def brokers_went_before(state: ControllerState, _moment: Moment) -> ControllerDecision:
    """Take every broker that isn't registered out of leaderships and ISRs: it went while there was no controller, or an
    earlier one did not come to its end. A take-over calls it when all registrations are replayed.
    """
    for broker_id in state.image.index.members():
        if broker_id not in state.image.brokers:
            records, _ = without_broker(state, broker_id)
            if records:
                return ControllerDecision(records, NO_RESPONSE, atomic=False, rest=brokers_went_before)
    return ControllerDecision([], NO_RESPONSE, atomic=False)


def came_again(
    state: ControllerState, _moment: Moment, *, members: Sequence[tuple[TopicPartition, Sequence[int]]]
) -> ControllerDecision:
    """Take members out of ISRs whose earlier process was in sync, while there was no controller to see it go: as if
    that controller had. The present process may lack records, and the records of two may not have one leader epoch.

    If no other member lives, one of these is as good as any: a session may also end without its process. The leader, or
    the first replica that lives, begins a leader epoch with itself as ISR.

    :param members: of each ISR
    """
    records: list[Message] = []
    broker_config = state.image.broker_config(state.config)
    active = active_in(state.image)
    for at, restarted in members[:SLICE_RECORDS]:
        topic = state.image.topics.get(at.topic)
        partition = None if topic is None else topic.partitions.get(at.partition)
        if topic is None or partition is None:
            continue
        kept = [member for member in partition.isr if member not in restarted]
        config = state.image.topic_config(topic.name, broker_config)
        change = partition_change(state, topic, partition, config, active, election=Election.ONLINE)
        if any(map(state.image.is_active, kept)):
            change.isr = kept
            record = change.record()
        else:
            candidates = [member for member in (partition.leader, *partition.replicas) if member in restarted]
            change.isr = candidates[:1]
            record = change.record() or PartitionChangeRecord(
                partition_id=at.partition, topic_id=topic.topic_id
            )
            record.leader = candidates[0]
        if record is not None:
            records.append(record)
    left = members[SLICE_RECORDS:]
    rest = partial(came_again, members=left) if left else None
    return ControllerDecision(records, NO_RESPONSE, atomic=False, rest=rest)


def end_reassignments(
    state: ControllerState, _moment: Moment, *, names: Sequence[str] | None = None
) -> ControllerDecision:
    """End the reassignments whose ISR has all that is needed. A leader that got that ISR from an earlier controller
    asks for no other, so nothing else would end them.

    :param names: topics that are still to be looked at; ``None`` for all
    """
    names = tuple(state.image.topics) if names is None else names
    records: list[Message] = []
    broker_config = state.image.broker_config(state.config)
    usable = active_in(state.image)
    looks = done = 0
    while done < len(names) and looks < SLICE_LOOKS and len(records) < SLICE_RECORDS:
        topic = state.image.topics.get(names[done])
        done += 1
        for partition in () if topic is None else topic.partitions.values():
            looks += 1
            if topic is not None and (partition.adding_replicas or partition.removing_replicas):
                config = state.image.topic_config(topic.name, broker_config)
                change = partition_change(state, topic, partition, config, usable, election=Election.ONLINE)
                record = change.record()
                if record is not None and (change.adding, change.removing) == ([], []):
                    records.append(record)
    rest = partial(end_reassignments, names=names[done:]) if done < len(names) else None
    return ControllerDecision(records, NO_RESPONSE, atomic=False, rest=rest)


def first_states_open(
    state: ControllerState, _moment: Moment, *, partitions: Sequence[TopicPartition]
) -> ControllerDecision:
    """Leave it open which replicas of partitions without a state are in sync: nothing was written to them, so any live
    ones are. The tree has nothing of this.

    They have partition epoch -1, so that the first state makes it 0, the version of a new znode. No other partition has
    an empty ISR.
    """
    records: list[Message] = []
    for at in partitions:
        topic = state.image.topics[at.topic]
        record = partition_record(topic, topic.partitions[at.partition])
        record.isr = []
        records.append(record)
    return ControllerDecision(records, NO_RESPONSE, atomic=False)


def states_read(
    state: ControllerState, _moment: Moment, *, states: Mapping[TopicPartition, PartitionImage]
) -> ControllerDecision:
    """Take over states that a leader has written by itself, as Kafka before 2.7 does."""
    records: list[Message] = []
    for at, read in states.items():
        topic = state.image.topics.get(at.topic)
        known = None if topic is None else topic.partitions.get(at.partition)
        # An older version was read before a write of ours.
        if topic is not None and known is not None and known.partition_epoch < read.partition_epoch:
            newer = replace(
                known,
                leader=read.leader,
                isr=read.isr,
                leader_epoch=read.leader_epoch,
                partition_epoch=read.partition_epoch,
            )
            records.append(partition_record(topic, newer))
    return ControllerDecision(records, NO_RESPONSE, atomic=False)


def elect_left_over(
    state: ControllerState, _moment: Moment, ahead: Sweep | None = None, *, stateless: bool = True
) -> ControllerDecision:
    """Give a state to partitions that have none, then elect leaders for those that have lost theirs.

    :param ahead: where the part before ended
    :param stateless: whether that part was one of the first kind
    """
    if not any(map(state.image.is_active, state.image.brokers)):
        return ControllerDecision([], NO_RESPONSE, atomic=False)
    elect = _first_states if stateless else with_any_broker
    records, ahead = elect(state, ahead)
    if ahead is None and not stateless:
        return ControllerDecision(records, NO_RESPONSE, atomic=False)
    rest = partial(elect_left_over, ahead=ahead, stateless=stateless and ahead is not None)
    return ControllerDecision(records, NO_RESPONSE, atomic=False, rest=rest)


def _first_states(state: ControllerState, ahead: Sweep | None) -> tuple[list[Message], Sweep | None]:
    def first_state(topic: TopicImage, partition: PartitionImage) -> Message | None:
        active = [replica for replica in partition.replicas if state.image.is_active(replica)]
        if partition.isr or not active:
            return None
        return PartitionChangeRecord(
            partition_id=partition.partition, topic_id=topic.topic_id, isr=active, leader=active[0]
        )

    return _swept(state.image, state.image.index.led(NO_LEADER), ahead, first_state)


def shut_down(
    state: ControllerState, request: ControlledShutdownRequest, _moment: Moment
) -> ControllerDecision:
    """Begin a broker's controlled shutdown, or go on with it: other replicas lead where one is in sync and active.

    The answer names the partitions that the broker leads on, of those with another replica. It asks again while there
    are some. Nothing is elected that may lack records: the leader lives.

    Errors: BROKER_NOT_AVAILABLE, STALE_BROKER_EPOCH.
    """
    broker = state.image.brokers.get(request.broker_id)
    if broker is None:
        return _refused(ErrorCode.BROKER_NOT_AVAILABLE)
    if UNKNOWN_BROKER_EPOCH != request.broker_epoch < broker.epoch:
        return _refused(ErrorCode.STALE_BROKER_EPOCH)
    records: list[Message] = []
    if not broker.in_controlled_shutdown:
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=1
            )
        )
    return _move_away(state, records, broker.broker_id, broker.epoch)


def _refused(error: ErrorCode) -> ControllerDecision:
    return ControllerDecision([], ControlledShutdownResponse(error_code=error))


def _move_away(
    state: ControllerState,
    before: Sequence[Message],
    broker_id: int,
    broker_epoch: int,
    ahead: Sweep | None = None,
) -> ControllerDecision:
    def usable(replica: int, directory: bytes) -> bool:
        return replica != broker_id and active(replica, directory)

    def moved(topic: TopicImage, partition: PartitionImage) -> Message | None:
        if len(partition.replicas) == 1:
            return None
        config = state.image.topic_config(topic.name, broker_config)
        change = partition_change(state, topic, partition, config, usable, election=Election.ONLINE)
        change.isr = [replica for replica in change.isr if replica != broker_id]
        record = change.record()
        return None if record is None or record.leader == NO_LEADER else record

    active = active_in(state.image)
    broker_config = state.image.broker_config(state.config)
    records, ahead = _swept(state.image, state.image.index.in_sync(broker_id), ahead, moved)
    rest = partial(_shut_down_on, broker_id=broker_id, broker_epoch=broker_epoch, ahead=ahead)
    return ControllerDecision([*before, *records], NO_RESPONSE, atomic=False, rest=rest)


def _shut_down_on(
    state: ControllerState,
    _moment: Moment,
    *,
    broker_id: int,
    broker_epoch: int,
    ahead: Sweep | None,
) -> ControllerDecision:
    """The parts behind the first, whose last looks for what the broker still leads."""
    broker = state.image.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        return _refused(ErrorCode.STALE_BROKER_EPOCH)
    if ahead is not None:
        return _move_away(state, (), broker_id, broker_epoch, ahead)
    return _remaining(state, broker_id, [], None)


def _remaining(
    state: ControllerState, broker_id: int, found: list[RemainingPartition], ahead: Sweep | None
) -> ControllerDecision:
    """Collect what the broker leads, as far as one part goes.

    :param found: what the parts before have found; grows
    """

    def note(topic: TopicImage, partition: PartitionImage) -> None:
        if len(partition.replicas) > 1:
            found.append(RemainingPartition(topic_name=topic.name, partition_index=partition.partition))

    _, ahead = _swept(state.image, state.image.index.led(broker_id), ahead, note)
    if ahead is None:
        return ControllerDecision([], ControlledShutdownResponse(remaining_partitions=found), atomic=False)
    behind = ahead

    def rest(state: ControllerState, _: Moment) -> ControllerDecision:
        return _remaining(state, broker_id, found, behind)

    return ControllerDecision([], NO_RESPONSE, atomic=False, rest=rest)


def replicas_failed(
    state: ControllerState, _moment: Moment, *, broker_id: int, partitions: Sequence[TopicPartition]
) -> ControllerDecision:
    """Take replicas whose log directory is lost out of leaderships and ISRs: they may not lead until their broker
    registers anew.

    A tree has no directories, so the next controller hears of them when it asks the broker to take its roles.
    """
    if broker_id not in state.image.brokers:
        return ControllerDecision([], NO_RESPONSE, atomic=False)
    records: list[Message] = []
    broker_config = state.image.broker_config(state.config)
    usable = active_in(state.image)
    for at in partitions[:SLICE_RECORDS]:
        topic = state.image.topics.get(at.topic)
        partition = None if topic is None else topic.partitions.get(at.partition)
        if topic is None or partition is None or broker_id not in partition.replicas:
            continue
        if directory_of(partition, broker_id) == LOST_DIRECTORY:
            continue
        if broker_id != partition.leader and broker_id not in partition.isr:
            records.append(_in_directory(topic, partition, broker_id, LOST_DIRECTORY))
            continue
        config = state.image.topic_config(topic.name, broker_config)
        change = partition_change(state, topic, partition, config, usable)
        change.assign(broker_id, LOST_DIRECTORY)
        change.isr = [replica for replica in change.isr if replica != broker_id]
        record = change.record()
        if record is not None:
            records.append(record)
    left = partitions[SLICE_RECORDS:]
    rest = partial(replicas_failed, broker_id=broker_id, partitions=left) if left else None
    return ControllerDecision(records, NO_RESPONSE, atomic=False, rest=rest)


def replicas_restored(
    state: ControllerState, _moment: Moment, *, broker_id: int, partitions: Sequence[TopicPartition]
) -> ControllerDecision:
    """Take those of these replicas that are lost for well again. That changes no epoch, and is not written."""
    records: list[Message] = []
    for at in partitions[:SLICE_RECORDS]:
        topic = state.image.topics.get(at.topic)
        partition = None if topic is None else topic.partitions.get(at.partition)
        if topic is None or partition is None or broker_id not in partition.replicas:
            continue
        if directory_of(partition, broker_id) == LOST_DIRECTORY:
            records.append(_in_directory(topic, partition, broker_id, MIGRATING_DIRECTORY))
    left = partitions[SLICE_RECORDS:]
    rest = partial(replicas_restored, broker_id=broker_id, partitions=left) if left else None
    return ControllerDecision(records, NO_RESPONSE, atomic=False, rest=rest)


def _in_directory(topic: TopicImage, partition: PartitionImage, broker_id: int, directory: bytes) -> Message:
    """Returns the record that has the replica in another directory, and nothing else changed: no epoch either."""
    record = partition_record(topic, partition)
    record.directories = [
        directory if replica == broker_id else directory_of(partition, replica)
        for replica in partition.replicas
    ]
    return record


def _swept(
    image: MetadataImage,
    partitions: Mapping[bytes, int],
    ahead: Sweep | None,
    change: Callable[[TopicImage, PartitionImage], Message | None],
) -> tuple[list[Message], Sweep | None]:
    """Returns the changes of these partitions as far as one part goes, and what is ahead of the next."""
    records: list[Message] = []
    sweep = along(partitions, ahead or all_of(partitions))
    for looks, (topic_id, number, behind) in enumerate(sweep, start=1):
        topic = image.topics[image.topic_names[topic_id]]
        record = change(topic, topic.partitions[number])
        if record is not None:
            records.append(record)
        if len(records) == SLICE_RECORDS or looks == SLICE_LOOKS:
            return records, behind
    return records, None
