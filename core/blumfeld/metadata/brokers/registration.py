"""The life of a broker: BrokerRegistration, BrokerHeartbeat, UnregisterBroker and expired sessions (KIP-631,
Kafka's ``ClusterControlManager``). Pure.
"""

from __future__ import annotations

from collections.abc import Collection

from blumfeld.metadata.decision import ControllerDecision, ControllerState, Moment
from blumfeld.metadata.image.cluster_image import METADATA_VERSION_FEATURE
from blumfeld.metadata.partitions.change import with_broker, without_broker, without_directories
from blumfeld.metadata.partitions.directories import is_reserved
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

FENCE, UNFENCE = 1, -1
SHUTTING_DOWN = 1


def register_broker(
    state: ControllerState, request: BrokerRegistrationRequest, moment: Moment
) -> ControllerDecision:
    """Register a broker's process. It is fenced until a heartbeat shows that it has read the metadata up to
    here.

    The broker's epoch is the offset of its registration record. The same records first remove the id's
    previous process from every ISR and leadership.

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
    if old is not None and again is None:
        records += without_broker(state, request.broker_id)
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
    if old is not None and other_process and state.sessions.is_live(old.broker_id, old.epoch, moment.now_ms):
        raise BrokerError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"another process with node id {request.broker_id} is alive",
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


def broker_of_epoch(state: ControllerState, broker_id: int, broker_epoch: int) -> BrokerImage:
    """Returns the broker if the request comes from its present process.

    :raises BrokerError: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH
    """
    broker = state.image.brokers.get(broker_id)
    if broker is None:
        raise BrokerError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"no broker {broker_id} is registered")
    if broker.epoch != broker_epoch:
        raise BrokerError(
            ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} has epoch {broker.epoch}, not {broker_epoch}"
        )
    return broker


def heartbeat(state: ControllerState, request: BrokerHeartbeatRequest, _moment: Moment) -> ControllerDecision:
    """Decide on a broker's heartbeat: unfence it, fence it, or begin or finish its controlled shutdown.

    The heartbeat also lists the broker's offline log directories. Replicas in them leave their ISRs and
    leaderships, and the directories leave the registration (KIP-858).

    Errors: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH.
    """
    try:
        broker = broker_of_epoch(state, request.broker_id, request.broker_epoch)
    except BrokerError as error:
        return ControllerDecision([], BrokerHeartbeatResponse(error_code=error.code))
    caught_up = request.current_metadata_offset >= broker.epoch
    lost = [directory for directory in broker.log_dirs if directory in request.offline_log_dirs]
    records: list[Message] = []
    leaves = False
    fenced, shut_down = broker.fenced, False
    if broker.fenced:
        if request.want_shut_down:
            shut_down = True
        elif not request.want_fence and caught_up:
            fenced = False
            records = unfence(state, broker, lost)
    elif broker.in_controlled_shutdown:
        if _may_shut_down(state, broker):
            leaves = fenced = shut_down = True
            records = fence(state, broker)
    elif request.want_fence or (request.want_shut_down and not _leads(state, broker.broker_id)):
        leaves = fenced = True
        shut_down = request.want_shut_down
        records = fence(state, broker)
    elif request.want_shut_down:
        leaves = True
        records = [
            BrokerRegistrationChangeRecord(
                broker_id=broker.broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=SHUTTING_DOWN
            ),
            *without_broker(state, broker.broker_id),
        ]
    if lost:
        records += directories_lost(state, broker, lost, leaves)
    return ControllerDecision(
        records,
        BrokerHeartbeatResponse(is_caught_up=caught_up, is_fenced=fenced, should_shut_down=shut_down),
    )


def _leads(state: ControllerState, broker_id: int) -> bool:
    return any(
        partition.leader == broker_id
        for topic in state.image.topics.values()
        for partition in topic.partitions.values()
    )


def _may_shut_down(state: ControllerState, broker: BrokerImage) -> bool:
    """Whether the broker leads nothing and every active broker has read the record that began its shutdown."""
    if _leads(state, broker.broker_id):
        return False
    begun = state.sessions.shutdown_offset(broker.broker_id)
    others = [b for b in state.image.brokers if b != broker.broker_id and state.image.is_active(b)]
    return all(state.sessions.metadata_offset(other) >= begun for other in others)


def fence(state: ControllerState, broker: BrokerImage) -> list[Message]:
    """Returns the records that remove the broker from every ISR and leadership, and fence it."""
    change = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=FENCE
    )
    return [*without_broker(state, broker.broker_id), change]


def unfence(
    state: ControllerState, broker: BrokerImage, offline_directories: Collection[bytes] = ()
) -> list[Message]:
    """Returns the records that unfence the broker. It is elected for partitions without a leader, except where
    its replica lies in one of ``offline_directories``.
    """
    change = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=UNFENCE
    )
    return [change, *with_broker(state, broker.broker_id, offline_directories)]


def directories_lost(
    state: ControllerState, broker: BrokerImage, lost: Collection[bytes], leaves: bool
) -> list[Message]:
    """Returns the records that remove these directories from the registration, and their replicas from ISRs
    and leaderships.

    :param leaves: the broker leaves every ISR and leadership anyway, so only the registration changes here

    If no directory is left, the registration stays as it is: the broker stops by itself, as Kafka's does.
    """
    records = [] if leaves else without_directories(state, broker.broker_id, lost)
    left = [directory for directory in broker.log_dirs if directory not in lost]
    if left:
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.broker_id, broker_epoch=broker.epoch, log_dirs=left
            )
        )
    return records


def fence_expired(state: ControllerState, broker_id: int) -> list[Message]:
    """Returns the records that fence a broker whose session has ended; none if it is already fenced or
    unregistered.
    """
    broker = state.image.brokers.get(broker_id)
    return [] if broker is None or broker.fenced else fence(state, broker)


def unregister_broker(
    state: ControllerState, request: UnregisterBrokerRequest, _moment: Moment
) -> ControllerDecision:
    """Unregister a broker. Error: BROKER_ID_NOT_REGISTERED."""
    broker = state.image.brokers.get(request.broker_id)
    if broker is None:
        return ControllerDecision(
            [],
            UnregisterBrokerResponse(
                error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
                error_message=f"broker ID {request.broker_id} is not currently registered",
            ),
        )
    records = without_broker(state, broker.broker_id)
    records.append(UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch))
    return ControllerDecision(records, UnregisterBrokerResponse(error_message=None))
