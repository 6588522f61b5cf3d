"""Consensus of a cluster with a ZooKeeper: ``ClusterMetadata`` of one node. It puts the rooms together.

The node has a session, for as long as it runs one after the other. In each it stands for election as controller, and
its broker has a znode. What it shows comes from the tree at the start, then from the controller's pushes and from the
nodes of ``/config``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from blumfeld.client.envelope import enveloped, inner_answer
from blumfeld.client.frames import api_key_of
from blumfeld.metadata.controller import Controller
from blumfeld.metadata.decision import Moment
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.sections import SectionKinds
from blumfeld.spi.cluster import ClusterImage, Endpoint
from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import Controller as ControllerId
from blumfeld.spi.consensus import ImageListener, OnBehalf, Quorum, ReplicaDriver
from blumfeld.spi.context import ApiHandler
from blumfeld.spi.hooks import Composition
from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC
from blumfeld.spi.runtime import pause
from blumfeld.spi.scheduler import Lane
from blumfeld.spi.storage import lasting
from blumfeld.spi.zookeeper import ZooKeeper
from blumfeld.wire.api import API_BY_KEY
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from blumfeld.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from blumfeld.wire.messages.broker_registration import BrokerRegistrationRequest
from blumfeld.wire.messages.envelope import EnvelopeResponse
from blumfeld.wire.messages.metadata_records import AccessControlEntryRecord
from blumfeld.wire.primitives import DecodeError, uuid_text
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.controller.candidate import Candidate
from blumfeld_consensus_zk_compat.counts import Counts
from blumfeld_consensus_zk_compat.node.cluster_id import agreed_cluster_id, make_persistent, top_level
from blumfeld_consensus_zk_compat.node.configuration import Configuration
from blumfeld_consensus_zk_compat.node.control_requests import ControlRequests
from blumfeld_consensus_zk_compat.node.controller_link import ControllerLink
from blumfeld_consensus_zk_compat.node.handlers import node_handlers
from blumfeld_consensus_zk_compat.node.image import NodeImage
from blumfeld_consensus_zk_compat.node.leftovers import Leftovers
from blumfeld_consensus_zk_compat.node.own_writes import CONFIG_COMMANDS, write_own
from blumfeld_consensus_zk_compat.node.pushed_records import UNKNOWN_EPOCH
from blumfeld_consensus_zk_compat.node.registration import BrokerLife, znode
from blumfeld_consensus_zk_compat.node.sessions import Sessions
from blumfeld_consensus_zk_compat.ports import Pushes, ReplicaFailed, StaleController
from blumfeld_consensus_zk_compat.pushes.controller_pushes import ControllerPushes
from blumfeld_consensus_zk_compat.tree.forms import MIGRATES, ControllerNode
from blumfeld_consensus_zk_compat.tree.loading import Loaded, loaded
from blumfeld_consensus_zk_compat.tree.versions import KnownAcls

MakeSession = Callable[[bool], ZooKeeper]
"""(whether to create the chroot if it isn't there) → a session that isn't connected."""
LOAD_AGAIN_MS = 500
"""Pause before the tree is read again that has topics without ids."""
REQUEST_TIMEOUT_MS = 30_000
"""Time for what another broker asks this node's controller for."""


class ZkMetadata:
    """``ClusterMetadata`` of one node.

    :param connect: the connect string, for errors
    :param chroot: the last part of it; "" for none
    """

    replica_driver = ReplicaDriver.PUSHES

    def __init__(
        self,
        composition: Composition,
        make_session: MakeSession,
        *,
        connect: str,
        chroot: str,
        connection_timeout_ms: float,
        in_migration: bool = False,
    ) -> None:
        self._composition = composition
        self._in_migration = in_migration
        self._kraft: ControllerNode | None = None
        """The controller of KRaft that has taken the cluster over, as ``/controller`` names it."""
        self._correlation = 0
        self._runtime = runtime = composition.runtime
        self._events = composition.log("zookeeper")
        self._connect = connect
        self._chroot = chroot
        self._section_kinds = SectionKinds(composition.image_sections)
        self._node_image = NodeImage(MetadataImage("", self._section_kinds), runtime, self._events)
        self._create_chroot = False
        self.counts = Counts()
        self._sessions = Sessions(
            make=lambda: make_session(self._create_chroot),
            runtime=runtime,
            events=self._events,
            connection_timeout_ms=connection_timeout_ms,
            begun=self._session_begun,
            ended=self._session_ended,
        )
        self._link = ControllerLink(runtime, self._ask_controller)
        self._life = BrokerLife(
            node_id=composition.node_id,
            runtime=runtime,
            events=self._events,
            image=self._node_image,
            form=lambda request: znode(request, runtime.now_ms(), {MIGRATES: (1, 1)} if in_migration else {}),
            ask_controller=self._link.ask,
            begins=self._begins,
        )
        self._orders = ControlRequests(
            node_id=composition.node_id,
            runtime=runtime,
            events=self._events,
            image=self._node_image,
            replicas=lambda: composition.replicas,
            broker_epoch=lambda: self._life.broker_epoch,
            topic_configs=self._topic_configs,
            told=self._life.told,
            pushed=self._told_of_cluster,
        )
        self._leftovers = Leftovers(
            node_id=composition.node_id,
            runtime=runtime,
            events=self._events,
            image=self._node_image,
            session=lambda: self._life.zookeeper,
            orders=self._orders,
        )
        self._configuration: Configuration | None = None
        self._acls = KnownAcls()
        """Those of the node's image."""
        self._brought = {command.request for command in composition.controller_commands}
        self._candidate: Candidate | None = None
        self._pushes: ControllerPushes | None = None
        """Those of this node's last term as controller."""
        self._seen_controller: int | None = None
        self._started = self._stopped = False

    # What others read

    @property
    def image(self) -> ClusterImage:
        """As ``ClusterMetadata.image``."""
        return self._node_image.image

    @property
    def forwards(self) -> bool:
        """Commands are passed on while a controller of KRaft has the cluster: clients can't reach it."""
        return self._kraft is not None

    @property
    def controller_image(self) -> ClusterImage:
        """As ``ClusterMetadata.controller_image``: pushes don't say what is being reassigned."""
        term = None if self._candidate is None else self._candidate.term
        return self.image if term is None else term.active.state.image

    @property
    def controller(self) -> ControllerId | None:
        """The controller that this node has seen in the tree. This node itself only once it has loaded the tree."""
        own = None if self._candidate is None else self._candidate.controller
        if own is not None:
            return own
        if self._kraft is not None:
            return ControllerId(self._kraft.broker_id, self._orders.controller_epoch)
        if self._seen_controller in (None, self._composition.node_id):
            return None
        assert self._seen_controller is not None
        return ControllerId(self._seen_controller, self._orders.controller_epoch)

    def quorum(self) -> Quorum | None:
        """There is none: the quorum is ZooKeeper's."""
        return None

    @property
    def applied_offset(self) -> int:
        """A tree has no offsets."""
        return -1

    def subscribe(self, listener: ImageListener) -> None:
        """As ``ClusterMetadata.subscribe``."""
        self._node_image.subscribe(listener)

    def handlers(self) -> list[ApiHandler]:
        """The APIs that this consensus brings."""
        return node_handlers(self._orders.serve, self._decide)

    # Start and stop

    async def agreed_cluster_id(self, own: str | None, *, is_formatted: bool) -> str:
        """As ``ClusterIdKeeper.agreed_cluster_id``. It opens the session.

        :raises TimeoutError: no server answered in time
        """
        self._create_chroot = not is_formatted
        session = await self._sessions.open()
        return await agreed_cluster_id(
            session,
            own,
            lambda: uuid_text(self._runtime.new_uuid()),
            is_formatted=is_formatted,
            where=self._connect,
        )

    async def start(self) -> None:
        """Read the tree, and stand for election.

        :raises TreeError: a node of the tree can't be read, or the cluster belongs to KRaft
        """
        if self._in_migration:
            self._leave_quorum()
        session = self._sessions.present
        await make_persistent(session, top_level())
        configuration = self._configuration = self._new_configuration(session)
        await configuration.note_changes()
        tree = await self._loaded(session)
        if tree.without_id:
            # An image without these topics would have their logs set aside as strays. A controller gives them ids.
            self._stand(session)
            while tree.without_id:
                await pause(self._runtime, LOAD_AGAIN_MS)
                tree = await self._loaded(session)
        image = tree.image
        image.cluster_id = self._composition.cluster_id
        image.features_epoch = tree.versions.nodes.get("/feature", -1)
        for broker_id, known in list(image.registrations.items()):
            # UpdateMetadata says no more of their epochs, so what was read now would be out of date soon.
            image.registrations[broker_id] = replace(known, broker_epoch=UNKNOWN_EPOCH)
            image.brokers[broker_id] = replace(image.brokers[broker_id], epoch=UNKNOWN_EPOCH)
        self._node_image.load(image)
        self._acls.note(
            record for record in image.kept.values() if isinstance(record, AccessControlEntryRecord)
        )
        for path, error in tree.unreadable.items():
            self._unreadable(path, error)
        self._started = True
        configuration.begin()
        self._life.session(session)
        if self._candidate is None:
            self._stand(session)

    def _leave_quorum(self) -> None:
        """Set the log of a quorum aside that this broker read before it went back to the tree. The controllers of
        another try have a log of their own, with the same epochs and offsets."""
        kept = lasting(self._composition.local_storage)
        there = (
            [] if kept is None else [at for at, _ in kept.partitions() if at.topic == CLUSTER_METADATA_TOPIC]
        )
        for partition in there:
            assert kept is not None
            kept.set_aside_log(partition)
            self._events.warning(
                "the log of a quorum is set aside: this broker reads the tree", log=str(partition)
            )

    async def _loaded(self, session: ZooKeeper) -> Loaded:
        steps = loaded(session, section_kinds=self._section_kinds, in_migration=self._in_migration)
        return await self._runtime.scheduler.completed(Lane.METADATA, steps)

    async def caught_up(self) -> None:
        """The start has read the tree."""

    async def resign(self) -> None:
        """As ``ClusterMetadata.resign``."""
        if self._candidate is not None:
            await self._candidate.resign()

    async def stop(self) -> None:
        """As ``ClusterMetadata.stop``: the session ends, and with it the broker's znode."""
        self._stopped = True
        self._link.stop()
        self._life.stop()
        if self._configuration is not None:
            self._configuration.stop()
        if self._candidate is not None:
            self._candidate.stop()
        self._node_image.stop()
        await self._sessions.close()

    # Sessions

    def _session_begun(self, session: ZooKeeper) -> None:
        if not self._started or self._stopped:
            return
        self._configuration = self._new_configuration(session)
        self._configuration.begin(again=True)
        self._life.session(session)
        self._stand(session)

    def _session_ended(self) -> None:
        self.counts.sessions_expired += 1
        self._life.session_ended()
        self._controller_seen(None)
        if self._configuration is not None:
            self._configuration.stop()
        if self._candidate is not None:
            self._candidate.stop()
            self._candidate = None

    def _new_configuration(self, session: ZooKeeper) -> Configuration:
        return Configuration(
            zookeeper=session,
            runtime=self._runtime,
            events=self._events,
            image=self._node_image,
            acls=self._acls,
            counts=self.counts,
            changed=self._node_changed,
        )

    def _topic_configs(self, names: Sequence[str]) -> Completion[list[Message]]:
        assert self._configuration is not None
        return self._configuration.topics(names)

    def _node_changed(self, path: str) -> None:
        if self._candidate is not None:
            self._candidate.node_changed(path)

    def _unreadable(self, path: str, error: str) -> None:
        """A load has left a node out: it is read again when it is mended."""
        self.counts.unreadable_found(self._events, path, error)
        if self._configuration is not None:
            self._configuration.look_at(path)

    # The controller in this node

    def _stand(self, session: ZooKeeper) -> None:
        composition = self._composition
        self._candidate = Candidate(
            zookeeper=session,
            runtime=self._runtime,
            events=composition.log("controller"),
            node_id=composition.node_id,
            config=composition.config,
            make_pushes=self._make_pushes,
            seen=self._controller_seen,
            refused=self._refused,
            chroot=self._chroot,
            features=composition.features,
            section_kinds=self._section_kinds,
            counts=self.counts,
            unreadable=self._unreadable,
            kraft_seen=self._kraft_seen if self._in_migration else None,
        )
        self._candidate.begin()

    def _controller_seen(self, broker_id: int | None) -> None:
        self._seen_controller = broker_id
        self._kraft = None

    def _kraft_seen(self, controller: ControllerNode) -> None:
        if self._kraft is None or self._kraft.broker_id != controller.broker_id:
            self._events.info("a controller of KRaft has the cluster", controller_id=controller.broker_id)
        self._seen_controller, self._kraft = None, controller

    def _refused(self, reason: str) -> None:
        self._events.error("this node can't be the controller", reason=reason)

    def _make_pushes(self, *, replica_failed: ReplicaFailed, stale_controller: StaleController) -> Pushes:
        self._pushes = ControllerPushes(
            runtime=self._runtime,
            events=self._composition.log("controller"),
            listener=self._inter_broker,
            send=self._push,
            replica_failed=replica_failed,
            stale_controller=stale_controller,
        )
        return self._pushes

    @property
    def _inter_broker(self) -> str:
        return next(at.name for at in self._composition.listeners if at.inter_broker)

    def _push(self, broker_id: int, request: Message, timeout_ms: float) -> Completion[Message]:
        """Send a push. This node's own doesn't take the way over a socket: its listeners may not be open yet."""
        if broker_id == self._composition.node_id:
            return self._orders.serve(request)
        channel = self._composition.peers.channel(broker_id, self._inter_broker, "pushes", self)
        return channel.send(request, timeout_ms)

    def endpoint(self, node_id: int, listener: str) -> Endpoint | None:
        """As ``Endpoints.endpoint``: a broker's address as the controller in this node knows it, else this node; that
        of a controller of KRaft as ``/controller`` says it."""
        kraft = self._kraft
        if kraft is not None and kraft.endpoint is not None and kraft.broker_id == node_id:
            return kraft.endpoint
        image = self._node_image.image if self._pushes is None else self._pushes.image
        broker = image.brokers.get(node_id) or self._node_image.image.brokers.get(node_id)
        return None if broker is None else broker.endpoint(listener)

    # Commands

    def submit(
        self,
        command: Message,
        timeout_ms: float,
        *,
        on_behalf: OnBehalf | None = None,
        wait_image: bool = True,
    ) -> Completion[Message]:
        """As ``ClusterMetadata.submit``. A client's command at a node that isn't the controller fails with
        NOT_CONTROLLER, except that any node writes configurations and what plug-ins' commands decide: ACLs, quotas,
        credentials, delegation tokens.
        """
        if not self._started or self._stopped:
            return _failed(BrokerError(ErrorCode.NOT_CONTROLLER))
        if isinstance(command, BrokerRegistrationRequest):
            return self._life.register(command)
        if isinstance(command, BrokerHeartbeatRequest):
            return self._life.heartbeat(command, timeout_ms)
        if isinstance(command, AssignReplicasToDirsRequest):
            return _failed(
                BrokerError(ErrorCode.UNSUPPORTED_VERSION, "a tree has no directories of replicas")
            )
        if self._kraft is not None:
            return self._link.ask(command, timeout_ms, on_behalf=on_behalf)
        if type(command).__name__ in CONFIG_COMMANDS or type(command) in self._brought:
            return self._written_here(command, timeout_ms, on_behalf)
        if on_behalf is None:
            return self._link.ask(command, timeout_ms, wait_image=wait_image)
        return self._own(command, timeout_ms, wait_image=wait_image)

    def _decide(self, command: Message) -> Completion[Message]:
        """Another broker's request."""
        return self._own(command, REQUEST_TIMEOUT_MS, wait_image=False)

    def _own(self, command: Message, timeout_ms: float, *, wait_image: bool) -> Completion[Message]:
        """Have this node's controller decide."""
        answer: Completion[Message] = Completion()
        candidate = self._candidate
        if candidate is None or candidate.controller is None:
            answer.fail(BrokerError(ErrorCode.NOT_CONTROLLER))
            return answer
        limit = self._runtime.call_later(
            timeout_ms, lambda: _settle(answer, None, BrokerError(ErrorCode.REQUEST_TIMED_OUT))
        )

        def answered(done: Completion[Message]) -> None:
            limit.cancel()
            if done.error is not None or not wait_image or self._pushes is None:
                _settle(answer, None if done.error else done.result(), done.error)
                return
            shown = self._pushes.pushed(self._composition.node_id)
            shown.when_done(lambda _: _settle(answer, done.result(), None))

        reply: Completion[Message] = Completion()
        reply.when_done(answered)
        candidate.submit(command, reply)
        return answer

    def _ask_controller(
        self, command: Message, timeout_ms: float, wait_image: bool, on_behalf: OnBehalf | None
    ) -> Completion[Message] | None:
        if self._kraft is not None:
            return self._ask_kraft(self._kraft, command, timeout_ms, on_behalf)
        controller = self.controller
        if controller is None:
            return None
        if on_behalf is not None:  # the cluster went back to its ZooKeeper meanwhile
            return self.submit(command, timeout_ms, on_behalf=on_behalf, wait_image=wait_image)
        if controller.node_id == self._composition.node_id:
            return self._own(command, timeout_ms, wait_image=wait_image)
        channel = self._composition.peers.channel(controller.node_id, self._inter_broker, "forward")
        return channel.send(command, timeout_ms)

    def _ask_kraft(
        self, kraft: ControllerNode, command: Message, timeout_ms: float, on_behalf: OnBehalf | None
    ) -> Completion[Message] | None:
        """Ask a controller of KRaft; a client's command in an Envelope (KIP-590)."""
        if kraft.endpoint is None:
            return None
        channel = self._composition.peers.channel(
            kraft.broker_id, kraft.endpoint.listener, "forward to the quorum", self
        )
        if on_behalf is None:
            return channel.send(command, timeout_ms)
        key = api_key_of(command)
        version = API_BY_KEY[key].max_version
        self._correlation += 1
        answer: Completion[Message] = Completion()

        def answered(done: Completion[Message]) -> None:
            try:
                envelope = done.result()
                assert isinstance(envelope, EnvelopeResponse)
                answer.complete(inner_answer(envelope, key, version))
            except DecodeError as error:
                answer.fail(BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
            except (BrokerError, OSError) as error:
                answer.fail(error)

        envelope = enveloped(command, version, self._correlation, on_behalf)
        channel.send(envelope, timeout_ms).when_done(answered)
        return answer

    def _written_here(
        self, command: Message, timeout_ms: float, on_behalf: OnBehalf | None
    ) -> Completion[Message]:
        def moment() -> Moment:
            return Moment(
                now_ms=self._runtime.monotonic_ms(),
                wall_ms=self._runtime.now_ms(),
                next_offset=0,
                new_uuid=self._runtime.new_uuid,
                new_secret=self._runtime.secrets,
            )

        composition = self._composition
        assert self._configuration is not None  # since the start
        written = write_own(
            command,
            on_behalf,
            zookeeper=self._sessions.present,
            runtime=self._runtime,
            catch_up=self._configuration.catch_up,
            image=self._node_image,
            acls=self._acls,
            controller=lambda: Controller(
                self._node_image.image,
                composition.config,
                composition.features,
                composition.controller_commands,
            ),
            moment=moment,
            in_migration=self._in_migration,
        )
        answer: Completion[Message] = Completion()
        limit = self._runtime.call_later(
            timeout_ms, lambda: _settle(answer, None, BrokerError(ErrorCode.REQUEST_TIMED_OUT))
        )

        async def run(work: Awaitable[Message]) -> None:
            try:
                _settle(answer, await work, None)
            except Exception as error:
                _settle(answer, None, error)
            finally:
                limit.cancel()

        self._runtime.spawn(run(written), "write what a client changes")
        return answer

    def _told_of_cluster(self, controller_epoch: int, broker_epoch: int) -> None:
        self._leftovers.pushed(controller_epoch, broker_epoch)

    def _begins(self) -> None:
        self._orders.begin()


def _failed(error: BrokerError) -> Completion[Message]:
    failed: Completion[Message] = Completion()
    failed.fail(error)
    return failed


def _settle(answer: Completion[Message], value: Message | None, error: BaseException | None) -> None:
    """Settle it, unless its time was over before."""
    if answer.done:
        return
    if error is not None:
        answer.fail(error)
    else:
        assert value is not None
        answer.complete(value)
