"""The broker's life in a tree: its znode, and the answers to its own heartbeats.

The znode's ``czxid`` is the broker epoch. It ends with its session, and so it is made again for the next session. The
order of ADR 0019 holds so: no controller sends a push to this process before its znode is there, each push names the
broker epoch, and one for an earlier process is refused. The controller begins a leader epoch for what an earlier
process led.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from blumfeld.metadata.image.security_protocols import protocol_name
from blumfeld.spi.cluster import Endpoint
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import Runtime, Timer
from blumfeld.spi.zookeeper import (
    ConnectionLostError,
    NodeExistsError,
    NodeStat,
    SessionExpiredError,
    ZooKeeper,
    ZooKeeperError,
)
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from blumfeld.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from blumfeld.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from blumfeld.wire.messages.metadata_records import BrokerEndpoint, RegisterBrokerRecord
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.node.image import NodeImage
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms import BrokerNode, encode_broker
from blumfeld_consensus_zk_compat.tree.forms_topics import encode_log_dir_event

RETRY_MS = 1_000
"""Pause before a registration is tried again that another session holds up, or that failed."""
TOLD_MS = 500
"""Longest wait of a heartbeat's answer for the first pushes."""


def znode(request: BrokerRegistrationRequest, now_ms: int, features: Mapping[str, tuple[int, int]]) -> bytes:
    """The content of a broker's znode.

    :param features: none but what a migration asks for: Kafka with a ZooKeeper has none to finalize
    """
    endpoints = tuple(
        Endpoint(at.name, at.host, at.port, protocol_name(at.security_protocol)) for at in request.listeners
    )
    node = BrokerNode(endpoints=endpoints, rack=request.rack, features=features, timestamp_ms=now_ms)
    return encode_broker(node)


class BrokerLife:
    """Answers BrokerRegistration and BrokerHeartbeat of this node's own broker.

    :param form: the content of the znode
    :param ask_controller: sends a request of this node to the controller, wherever it is
    :param begins: is called when the broker hosts replicas, so that pushes may be obeyed
    """

    def __init__(
        self,
        *,
        node_id: int,
        runtime: Runtime,
        events: EventLog,
        image: NodeImage,
        form: Callable[[BrokerRegistrationRequest], bytes],
        ask_controller: Callable[[Message, float], Completion[Message]],
        begins: Callable[[], None],
    ) -> None:
        self.broker_epoch = -1
        """The ``czxid`` of this process's znode in the present session, or the last one."""
        self._path = paths.broker(node_id)
        self._node_id = node_id
        self._runtime = runtime
        self._events = events
        self._repeated = RepeatedEvents(runtime)
        self._image = image
        self._form = form
        self._ask_controller = ask_controller
        self._begins = begins
        self.zookeeper: ZooKeeper | None = None
        """The session now; ``None`` while there is none."""
        self._registration: BrokerRegistrationRequest | None = None
        self._is_ready = False
        self._retry: Timer | None = None
        self._told_directories: frozenset[bytes] = frozenset()
        self._untold: set[tuple[bytes, int]] | None = None
        """Replicas that the tree placed here at the start, and that no push has named yet; ``None`` before the broker
        hosts any."""
        self._metadata_told = False
        self._waiting: list[tuple[Completion[Message], Timer]] = []
        """Heartbeats whose answer waits for the first pushes."""
        self._stopped = False

    def session(self, zookeeper: ZooKeeper) -> None:
        """Another session has begun. A broker that was registered registers again."""
        self.zookeeper = zookeeper
        if self.broker_epoch >= 0:
            self._register_again()

    def session_ended(self) -> None:
        """The session is over: this process has no znode until the next one."""
        self.zookeeper = None
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def stop(self) -> None:
        """Register no more."""
        self._stopped = True
        if self._retry is not None:
            self._retry.cancel()
        self._all_told()

    # Registration

    def register(self, request: BrokerRegistrationRequest) -> Completion[Message]:
        """Make the znode, and answer when the image shows it.

        DUPLICATE_BROKER_REGISTRATION while another session has the node's id. Fails with ``BrokerError``
        NOT_CONTROLLER (retriable) while no server is reached.
        """
        answer: Completion[Message] = Completion()
        zookeeper = self.zookeeper
        if zookeeper is None or self._stopped:
            answer.fail(BrokerError(ErrorCode.NOT_CONTROLLER))
            return answer
        self._registration = request
        created = zookeeper.create(self._path, self._form(request), ephemeral=True)
        created.when_done(lambda done: self._created(request, zookeeper, answer, done.error))
        return answer

    def _created(
        self,
        request: BrokerRegistrationRequest,
        zookeeper: ZooKeeper,
        answer: Completion[Message],
        error: BaseException | None,
    ) -> None:
        if error is not None and not isinstance(error, NodeExistsError):
            answer.fail(_as_broker_error(error))
            return
        # After a lost answer the node that is there may be our own.
        zookeeper.exists(self._path).when_done(lambda done: self._seen(request, zookeeper, answer, done))

    def _seen(
        self,
        request: BrokerRegistrationRequest,
        zookeeper: ZooKeeper,
        answer: Completion[Message],
        done: Completion[NodeStat | None],
    ) -> None:
        if done.error is not None:
            answer.fail(_as_broker_error(done.error))
            return
        stat = done.result()
        if stat is None:  # the other session's node has just gone, or ours with its session
            answer.fail(BrokerError(ErrorCode.NOT_CONTROLLER))
        elif stat.ephemeral_owner != zookeeper.session_id:
            duplicate = ErrorCode.DUPLICATE_BROKER_REGISTRATION
            text = "another process with this node's id is alive, or its session isn't over yet"
            self._repeated.say(self._events.warning, text, (self._path,), path=self._path)
            answer.complete(BrokerRegistrationResponse(error_code=duplicate))
        else:
            self.broker_epoch = stat.czxid
            shown = self._image.replay([self._record(request, stat.czxid)])
            response = BrokerRegistrationResponse(broker_epoch=stat.czxid)
            shown.when_done(lambda _: answer.complete(response))

    def _record(self, request: BrokerRegistrationRequest, epoch: int) -> RegisterBrokerRecord:
        return RegisterBrokerRecord(
            broker_id=request.broker_id,
            incarnation_id=request.incarnation_id,
            broker_epoch=epoch,
            end_points=[
                BrokerEndpoint(
                    name=at.name, host=at.host, port=at.port, security_protocol=at.security_protocol
                )
                for at in request.listeners
            ],
            rack=request.rack,
            fenced=not self._is_ready,
        )

    def _register_again(self) -> None:
        """Register in a new session, again and again: the broker serves meanwhile what it leads."""
        assert self._registration is not None
        self._retry = None
        zookeeper = self.zookeeper

        def done(answer: Completion[Message]) -> None:
            refused = answer.error is not None or bool(getattr(answer.result(), "error_code", 0))
            if refused and not self._stopped and self.zookeeper is zookeeper and self._retry is None:
                self._retry = self._runtime.call_later(RETRY_MS, self._register_again)

        self.register(self._registration).when_done(done)

    # Heartbeats

    def heartbeat(self, request: BrokerHeartbeatRequest, timeout_ms: float) -> Completion[Message]:
        """Answer a heartbeat: the broker is unfenced as soon as it asks to be.

        STALE_BROKER_EPOCH: it is registered anew since, in another session.
        """
        if request.broker_epoch != self.broker_epoch:
            return Completion.of(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
        if request.want_shut_down:
            return self._shut_down(request, timeout_ms)
        if request.want_fence:
            return Completion.of(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=True))
        self._ready()
        lost = frozenset(request.offline_log_dirs)
        if lost <= self._told_directories:
            return self._told_or_late()
        return self._directories_lost(lost)

    def _ready(self) -> None:
        if self._is_ready:
            return
        self._is_ready = True
        image = self._image.image
        self._untold = {
            (topic.topic_id, number)
            for topic in image.topics.values()
            for number, partition in topic.partitions.items()
            if self._node_id in partition.replicas
        }
        assert self._registration is not None
        self._image.replay([self._record(self._registration, self.broker_epoch)])
        self._begins()

    def told(self, replicas: Sequence[tuple[bytes, int]]) -> None:
        """A push was obeyed: LeaderAndIsr with these replicas, or UpdateMetadata with none."""
        if self._untold is None:
            return
        self._untold.difference_update(replicas)
        self._metadata_told = self._metadata_told or not replicas
        if self._metadata_told and not self._untold:
            self._all_told()

    def _all_told(self) -> None:
        self._untold, self._metadata_told = set(), True
        waiting, self._waiting = self._waiting, []
        for answer, timer in waiting:
            timer.cancel()
            answer.complete(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False))

    def _told_or_late(self) -> Completion[Message]:
        """The answer, once the first pushes were obeyed: the listeners of a node are said to be open with it."""
        if self._metadata_told and not self._untold:
            return Completion.of(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False))
        answer: Completion[Message] = Completion()
        self._waiting.append((answer, self._runtime.call_later(TOLD_MS, self._late)))
        return answer

    def _late(self) -> None:
        answer, _ = self._waiting.pop(0)
        answer.complete(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False))

    def _directories_lost(self, lost: frozenset[bytes]) -> Completion[Message]:
        """Tell the controller that it is to ask for each replica of this broker."""
        answer: Completion[Message] = Completion()
        if self.zookeeper is None:
            answer.fail(BrokerError(ErrorCode.NOT_CONTROLLER))
            return answer

        def written(done: Completion[str]) -> None:
            if done.error is not None:
                answer.fail(_as_broker_error(done.error))
                return
            self._told_directories |= lost
            answer.complete(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False))

        path, content = f"{paths.LOG_DIR_EVENTS}/log_dir_event_", encode_log_dir_event(self._node_id)
        self.zookeeper.create(path, content, sequential=True).when_done(written)
        return answer

    def _shut_down(self, request: BrokerHeartbeatRequest, timeout_ms: float) -> Completion[Message]:
        answer: Completion[Message] = Completion()

        def done(asked: Completion[Message]) -> None:
            if asked.error is not None:
                answer.fail(asked.error)
                return
            response = asked.result()
            assert isinstance(response, ControlledShutdownResponse)
            may = not response.error_code and not response.remaining_partitions
            answer.complete(
                BrokerHeartbeatResponse(
                    error_code=response.error_code, is_caught_up=True, is_fenced=may, should_shut_down=may
                )
            )

        asking = ControlledShutdownRequest(broker_id=self._node_id, broker_epoch=request.broker_epoch)
        self._ask_controller(asking, timeout_ms).when_done(done)
        return answer


def _as_broker_error(error: BaseException) -> BaseException:
    """Returns a retriable error for a request whose outcome isn't known, or that no server took."""
    if isinstance(error, ConnectionLostError | SessionExpiredError):
        return BrokerError(ErrorCode.NOT_CONTROLLER, str(error))
    if isinstance(error, ZooKeeperError):
        return BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
    return error
