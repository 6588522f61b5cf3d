"""The life of a broker: BrokerRegistration, BrokerHeartbeat, UnregisterBroker and expired sessions (KIP-631,
Kafka's ``ClusterControlManager``). Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, TypeAlias

from msgspec.structs import replace

from blumfeld.metadata.brokers.migration import reads_tree
from blumfeld.metadata.decision import ControllerDecision, ControllerState, Moment, broker_of_epoch
from blumfeld.metadata.image.cluster_image import METADATA_VERSION_FEATURE
from blumfeld.metadata.image.partition_index import Sweep
from blumfeld.metadata.partitions.directories import is_reserved
from blumfeld.metadata.partitions.elections import (
    with_any_broker,
    with_broker,
    with_preferred_leaders,
    without_broker,
    without_directories,
    without_lost_broker,
)
from blumfeld.metadata.slices import SLICE_RECORDS
from blumfeld.spi.cluster import BrokerImage
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from blumfeld.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from blumfeld.wire.messages.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from blumfeld.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from blumfeld.wire.schema import Message

Rest: TypeAlias = Callable[[ControllerState, Moment], ControllerDecision]
FENCE, UNFENCE = 1, -1
SHUTTING_DOWN = 1


def register_broker(
    state: ControllerState, request: BrokerRegistrationRequest, moment: Moment
) -> ControllerDecision:
    """Register a broker's process. It is fenced until a heartbeat shows that it has read the metadata up to
    here.

    The broker's epoch is the offset of its registration record. The records before it, in as many parts as it takes,
    remove the id's previous process from every ISR and leadership. If the request doesn't name the previous process's
    epoch, that process ended without a clean shutdown: records that it had acknowledged may be gone, so it leaves
    every ELR, too (KIP-966). So does an id that was unregistered: its next process may have new disks.

    Errors: INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION, INVALID_REGISTRATION,
    UNSUPPORTED_VERSION.
    """
    try:
        _check_registration(state, request, moment)
    except BrokerError as error:
        return ControllerDecision([], BrokerRegistrationResponse(error_code=error.code))
    records: list[Message] = []
    old = state.image.registrations.get(request.broker_id)
    again = old if old is not None and old.incarnation_id == request.incarnation_id else None
    if again is None:
        clean = old is not None and request.previous_broker_epoch == old.broker_epoch
        remove = without_broker if clean else without_lost_broker
        records, ahead = remove(state, request.broker_id)
        if ahead is not None:
            rest = partial(_again, register_broker, request)
            return ControllerDecision(records, BrokerRegistrationResponse(), atomic=False, rest=rest)
    epoch = moment.next_offset + len(records) if again is None else again.broker_epoch
    records.append(
        RegisterBrokerRecord(
            broker_id=request.broker_id,
            is_migrating_zk_broker=False,
            incarnation_id=request.incarnation_id,
            broker_epoch=epoch,
            end_points=[
                BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in request.listeners
            ],
            features=[
                BrokerFeature(
                    name=f.name,
                    min_supported_version=f.min_supported_version,
                    max_supported_version=f.max_supported_version,
                )
                for f in request.features
            ],
            rack=request.rack,
            fenced=again is None or again.fenced,
            in_controlled_shutdown=again is not None and again.in_controlled_shutdown,
            log_dirs=list(request.log_dirs),
        )
    )
    return ControllerDecision(records, BrokerRegistrationResponse(broker_epoch=epoch))


def _check_registration(state: ControllerState, request: BrokerRegistrationRequest, moment: Moment) -> None:
    image = state.image
    if request.cluster_id != image.cluster_id:
        raise BrokerError(
            ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {image.cluster_id}, not {request.cluster_id}"
        )
    old = image.brokers.get(request.broker_id)
    other_process = old is not None and old.incarnation_id != request.incarnation_id
    if (
        old is not None
        and other_process
        and (
            reads_tree(image, old.broker_id)
            or state.sessions.is_live(old.broker_id, old.epoch, moment.now_ms)
        )
    ):
        raise BrokerError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"another process with node id {request.broker_id} is alive",
        )
    if request.broker_id < 0:
        raise BrokerError(
            ErrorCode.INVALID_REGISTRATION, f"a broker id is 0 or more, not {request.broker_id}"
        )
    dirs = request.log_dirs
    if not dirs or len(set(dirs)) != len(dirs) or any(map(is_reserved, dirs)):
        raise BrokerError(
            ErrorCode.INVALID_REGISTRATION, "log directory ids are missing, reserved or not unique"
        )
    for other in image.brokers.values():
        if other.broker_id != request.broker_id and any(d in other.log_dirs for d in dirs):
            raise BrokerError(
                ErrorCode.INVALID_REGISTRATION,
                f"a log directory of the request already belongs to broker {other.broker_id}",
            )
    supported = {f.name: (f.min_supported_version, f.max_supported_version) for f in request.features}
    for name, level in image.features.items():
        # Another build may have finalized a feature that no plug-in here brings. Its level is no reason to
        # refuse a broker.
        if name not in state.features:
            continue
        low, high = supported.get(name, (0, 0))
        if not low <= level <= high:
            raise BrokerError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the broker does not support {name} level {level}, which the cluster has finalized",
            )
    if METADATA_VERSION_FEATURE not in supported:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_VERSION, "the registration lists no metadata.version among its features"
        )


def heartbeat(state: ControllerState, request: BrokerHeartbeatRequest, _moment: Moment) -> ControllerDecision:
    """Decide on a broker's heartbeat: unfence it, fence it, or begin or finish its controlled shutdown.

    A broker in its controlled shutdown asks for it with each heartbeat. One that doesn't ask has not begun it: somebody
    else asked in its name. It stays, where Kafka would let it fall out of every ISR until its process is started again.

    The heartbeat also lists the broker's offline log directories. Replicas in them leave their ISRs and
    leaderships, and the directories leave the registration (KIP-858).

    Errors: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH.
    """
    try:
        broker = broker_of_epoch(state, request.broker_id, request.broker_epoch)
    except BrokerError as error:
        return ControllerDecision([], BrokerHeartbeatResponse(error_code=error.code))
    if broker.in_controlled_shutdown and not request.want_shut_down:
        stays = replace(state.image.registrations[broker.broker_id], in_controlled_shutdown=False)
        rest = partial(_again, heartbeat, request)
        return ControllerDecision([stays], BrokerHeartbeatResponse(), atomic=False, rest=rest)
    caught_up = request.current_metadata_offset >= broker.epoch
    lost = [directory for directory in broker.log_dirs if directory in request.offline_log_dirs]
    # A registration can't say that no directory is left (an empty list says nothing new), so the broker is fenced. It
    # stops by itself, as Kafka's does.
    want_fence = request.want_fence or (bool(lost) and len(lost) == len(broker.log_dirs))
    records: list[Message] = []
    leaves, fenced, shut_down = False, broker.fenced, False
    if broker.fenced:
        if request.want_shut_down:
            shut_down = True
        elif not want_fence and caught_up:
            response = BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)
            return _unfence(state, broker, lost, response, partial(_again, heartbeat, request))
    elif broker.in_controlled_shutdown:
        # A controller that died may have left partitions behind.
        leaves = True
        records, ahead = without_broker(state, broker.broker_id)
        if ahead is not None:
            return _part(records, request, caught_up)
        if _may_shut_down(state, broker):
            fenced = shut_down = True
            records.append(_fence_record(broker))
    elif want_fence or (request.want_shut_down and not _leads(state, broker.broker_id)):
        leaves = fenced = True
        shut_down = request.want_shut_down
        records, ahead = without_broker(state, broker.broker_id)
        # The fence comes last, with the last partitions: as long as it is not there, another controller goes on.
        if ahead is not None:
            return _part(records, request, caught_up)
        records.append(_fence_record(broker))
    elif request.want_shut_down:
        leaves = True
        begun = BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=SHUTTING_DOWN
        )
        moved, ahead = without_broker(state, broker.broker_id)
        records = [begun, *moved]
        if ahead is not None:
            return _part(records, request, caught_up)
    response = BrokerHeartbeatResponse(is_caught_up=caught_up, is_fenced=fenced, should_shut_down=shut_down)
    if lost and not leaves:
        return _directories_lost(state, broker, lost, response, records)
    return ControllerDecision([*records, *_left(broker, lost)], response, atomic=False)


def _again(command: Any, request: Message, state: ControllerState, moment: Moment) -> ControllerDecision:
    """Decide on the same request anew: the next part."""
    decision: ControllerDecision = command(state, request, moment)
    return decision


def _part(records: list[Message], request: BrokerHeartbeatRequest, caught_up: bool) -> ControllerDecision:
    """A part of a broker's leave. The same heartbeat is decided on again, and checks the broker's epoch again."""
    return ControllerDecision(
        records,
        BrokerHeartbeatResponse(is_caught_up=caught_up, is_fenced=False),
        atomic=False,
        rest=partial(_again, heartbeat, request),
    )


def _leads(state: ControllerState, broker_id: int) -> bool:
    return bool(state.image.index.led(broker_id))


def _may_shut_down(state: ControllerState, broker: BrokerImage) -> bool:
    """Whether the broker leads nothing and every active broker has read the record that began its shutdown."""
    if _leads(state, broker.broker_id):
        return False
    begun = state.sessions.shutdown_offset(broker.broker_id)
    # A broker that still reads a tree hears of it by a push, and tells no offset.
    image = state.image
    others = [
        b for b in image.brokers if b != broker.broker_id and image.is_active(b) and not reads_tree(image, b)
    ]
    return all(state.sessions.metadata_offset(other) >= begun for other in others)


def _fence_record(broker: BrokerImage) -> Message:
    return BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=FENCE)


def _unfence(
    state: ControllerState,
    broker: BrokerImage,
    lost: Sequence[bytes],
    response: Message,
    lose: Rest,
    ahead: Sweep | None = None,
) -> ControllerDecision:
    """Unfence the broker, then elect it for partitions without a leader, except where its replica lies in a lost
    directory.

    :param lose: the next part if directories are lost and not all fits in this one
    :param ahead: where the part before ended; ``None`` in the first, which has the record that unfences
    """
    records: list[Message] = []
    if ahead is None:
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=UNFENCE
            )
        )
    elected, ahead = with_broker(state, broker.broker_id, lost, ahead)
    records += elected
    if ahead is not None:
        behind = ahead

        def rest(state: ControllerState, _: Moment) -> ControllerDecision:
            there = state.image.brokers.get(broker.broker_id)
            if there is None or there.epoch != broker.epoch or not state.image.is_active(there.broker_id):
                return ControllerDecision([], response, atomic=False)
            return _unfence(state, there, lost, response, lose, behind)

        return ControllerDecision(records, response, atomic=False, rest=rest)
    if not lost:
        return ControllerDecision(records, response, atomic=False)
    if len(records) > SLICE_RECORDS // 2:
        return ControllerDecision(records, response, atomic=False, rest=lose)
    return _directories_lost(state, broker, lost, response, records)


def _directories_lost(
    state: ControllerState,
    broker: BrokerImage,
    lost: Sequence[bytes],
    response: Message,
    before: Sequence[Message] = (),
    ahead: Sweep | None = None,
) -> ControllerDecision:
    """Remove the replicas in these directories from ISRs and leaderships, and then the directories from the
    registration: as long as they are in it, another controller begins again.

    :param before: records that go in front
    :param ahead: where the part before ended
    """
    moved, ahead = without_directories(state, broker.broker_id, lost, ahead)
    records = [*before, *moved]
    if ahead is None:
        return ControllerDecision([*records, *_left(broker, lost)], response, atomic=False)
    behind = ahead

    def rest(state: ControllerState, _: Moment) -> ControllerDecision:
        there = state.image.brokers.get(broker.broker_id)
        if there is None or there.epoch != broker.epoch:
            return ControllerDecision([], response, atomic=False)
        return _directories_lost(state, there, lost, response, ahead=behind)

    return ControllerDecision(records, response, atomic=False, rest=rest)


def _left(broker: BrokerImage, lost: Collection[bytes]) -> list[Message]:
    """Returns the registration's change to the directories that are left; none if no directory is."""
    left = [directory for directory in broker.log_dirs if directory not in lost]
    if not lost or not left:
        return []
    return [
        BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, log_dirs=left)
    ]


def fence_expired(state: ControllerState, broker_id: int) -> tuple[list[Message], bool]:
    """Returns the next records that fence a broker whose session has ended, and whether they are the last; none if it
    is already fenced or unregistered.

    The leaders move first, and the fence is the last record: a broker that is heard from meanwhile stays, and a
    controller that takes over goes on.
    """
    broker = state.image.brokers.get(broker_id)
    if broker is None or broker.fenced or reads_tree(state.image, broker_id):
        return [], True
    records, ahead = without_broker(state, broker_id)
    if ahead is not None:
        return records, False
    return [*records, _fence_record(broker)], True


def fence_dead(
    state: ControllerState, _moment: Moment, *, broker_id: int, broker_epoch: int
) -> ControllerDecision:
    """Fence this registration of a broker, if it is the present one. Each part checks that anew."""
    broker = state.image.brokers.get(broker_id)
    response = BrokerHeartbeatResponse(is_fenced=True)
    if broker is None or broker.epoch != broker_epoch:
        return ControllerDecision([], response, atomic=False)
    records, last = fence_expired(state, broker_id)
    rest = None if last else partial(fence_dead, broker_id=broker_id, broker_epoch=broker_epoch)
    return ControllerDecision(records, response, atomic=False, rest=rest)


def balance_leaders(
    state: ControllerState, _moment: Moment, ahead: Sweep | None = None
) -> ControllerDecision:
    """Elect preferred leaders where others lead. It has no request, so its response means nothing."""
    records, ahead = with_preferred_leaders(state, ahead)
    rest = None if ahead is None else partial(balance_leaders, ahead=ahead)
    return ControllerDecision(records, BrokerHeartbeatResponse(), atomic=False, rest=rest)


def elect_left_over(
    state: ControllerState, _moment: Moment, ahead: Sweep | None = None
) -> ControllerDecision:
    """Elect leaders where a controller that died has not. It has no request, so its response means nothing."""
    records, ahead = with_any_broker(state, ahead)
    rest = None if ahead is None else partial(elect_left_over, ahead=ahead)
    return ControllerDecision(records, BrokerHeartbeatResponse(), atomic=False, rest=rest)


def unregister_broker(
    state: ControllerState, request: UnregisterBrokerRequest, _moment: Moment
) -> ControllerDecision:
    """Unregister a broker, alive or not. It leaves ISRs and leaderships first, in as many parts as it takes; its
    replicas stay assigned to it until they are reassigned, as in Kafka.

    Error: BROKER_ID_NOT_REGISTERED.
    """
    broker = state.image.brokers.get(request.broker_id)
    if broker is None:
        return ControllerDecision(
            [],
            UnregisterBrokerResponse(
                error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
                error_message=f"broker ID {request.broker_id} is not currently registered",
            ),
        )
    records, ahead = without_broker(state, broker.broker_id)
    response = UnregisterBrokerResponse(error_message=None)
    if ahead is not None:
        rest = partial(_again, unregister_broker, request)
        return ControllerDecision(records, response, atomic=False, rest=rest)
    records.append(UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch))
    return ControllerDecision(records, response, atomic=False)
