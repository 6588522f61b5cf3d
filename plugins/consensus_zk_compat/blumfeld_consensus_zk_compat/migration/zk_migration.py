"""The migration of one node of the quorum: it takes part while the node leads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from blumfeld.metadata.brokers.migration import MigrationState, brokers_of_tree, migration_state, reads_tree
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.spi.cluster import ClusterImage, Endpoint, ImageDelta
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler
from blumfeld.spi.hooks import Composition
from blumfeld.spi.migration import Decide, MigratingController
from blumfeld.spi.zookeeper import ZooKeeper
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.alter_partition import AlterPartitionRequest
from blumfeld.wire.messages.controlled_shutdown import ControlledShutdownRequest
from blumfeld.wire.messages.controller_registration import ControllerRegistrationRequest
from blumfeld.wire.messages.metadata_records import FeatureLevelRecord
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.controller.broker_lives import shut_down
from blumfeld_consensus_zk_compat.controller.decided_steps import with_leader_epochs
from blumfeld_consensus_zk_compat.controller.isr_changes import alter_or_tell_again
from blumfeld_consensus_zk_compat.migration.leadership import Leadership
from blumfeld_consensus_zk_compat.node.handlers import shutdown_handlers
from blumfeld_consensus_zk_compat.ports import ReplicaFailed, StaleController
from blumfeld_consensus_zk_compat.pushes.controller_pushes import ControllerPushes
from blumfeld_consensus_zk_compat.pushes.plan import reached_at
from blumfeld_consensus_zk_compat.tree.limits import check_fits
from blumfeld_consensus_zk_compat.tree.versions import TreeVersions
from blumfeld_consensus_zk_compat.tree.writing import TreeWriter

WRITTEN_MS = 5_000
"""The longest time that a node that stops waits for the tree to get what is committed."""


class ZkMigration:
    """Implements ``Migration``.

    :param make_session: makes a session that isn't connected
    :param listener: the listener that brokers use among themselves; "" for the first one of each broker
    """

    def __init__(
        self,
        composition: Composition,
        make_session: Callable[[], ZooKeeper],
        *,
        chroot: str,
        connection_timeout_ms: float,
        request_bytes_max: int,
        listener: str,
    ) -> None:
        self._composition = composition
        self._runtime = composition.runtime
        self._events = composition.log("migration")
        self._make_session = make_session
        self._chroot = chroot
        self._connection_timeout_ms = connection_timeout_ms
        self._listener = listener
        self._fits = TreeWriter(TreeVersions(), 0, request_bytes_max, chroot).fits
        self._leadership: Leadership | None = None
        self._controller: MigratingController | None = None
        self._subscribed = False

    # ``Migration``

    def lead(self, controller: MigratingController) -> None:
        """As ``Migration.lead``."""
        self.lead_no_more()
        if not self._subscribed:
            self._subscribed = True
            self._composition.metadata.subscribe(self._image_changed)
        self._controller = controller
        image: Any = self._composition.metadata.image
        if migration_state(image) is MigrationState.POST_MIGRATION:
            self._events.warning("the migration is over: take [migration] out of this node's manifest")
            return
        self._leadership = Leadership(
            controller,
            self._composition,
            self._events,
            open_session=self._open_session,
            endpoint=self._own_endpoint,
            make_pushes=self._make_pushes,
            chroot=self._chroot,
        )

    def lead_no_more(self) -> None:
        """As ``Migration.lead_no_more``."""
        leadership, self._leadership, self._controller = self._leadership, None, None
        if leadership is not None:
            leadership.stop()

    def decide_of(self, command: Message) -> Decide | None:
        """As ``Migration.decide_of``: if an answer was lost, no push tells a leader of its ISR."""
        if not isinstance(command, AlterPartitionRequest):
            return None
        return lambda state, moment: alter_or_tell_again(state, command, moment)

    def review(self, command: object, image: ClusterImage, records: Sequence[Message]) -> None:
        """As ``Migration.review``."""
        assert isinstance(image, MetadataImage)
        state = migration_state(image)
        if state is MigrationState.NONE:
            if isinstance(command, Message) and not isinstance(command, ControllerRegistrationRequest):
                raise BrokerError(
                    ErrorCode.NOT_CONTROLLER, "the cluster isn't copied from the ZooKeeper yet: wait for it"
                )
        elif state is MigrationState.MIGRATION:
            if any(isinstance(record, FeatureLevelRecord) for record in records):
                raise BrokerError(
                    ErrorCode.INVALID_REQUEST, "feature levels can't change before the migration is ended"
                )
            check_fits(records, image, self._fits)
            if brokers_of_tree(image):
                by_leader = isinstance(command, AlterPartitionRequest)
                with_leader_epochs(image, records, by_leader=by_leader)

    async def resign(self) -> None:
        """As ``Migration.resign``."""
        image: Any = self._composition.metadata.image
        if self._leadership is None or migration_state(image) is not MigrationState.MIGRATION:
            return
        late = self._runtime.call_later(WRITTEN_MS, self.lead_no_more)
        await self._leadership.written()
        late.cancel()

    def _image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        if self._leadership is not None and not delta.first:
            assert isinstance(image, MetadataImage)
            self._leadership.changed(image, delta)

    # What brokers that read the tree ask for

    def handlers(self) -> list[ApiHandler]:
        """The API that a quorum has no other use for."""
        return shutdown_handlers(self._shut_down)

    def _shut_down(self, request: Message) -> Completion[Message]:
        assert isinstance(request, ControlledShutdownRequest)
        if self._controller is None:
            raise BrokerError(ErrorCode.NOT_CONTROLLER)
        words = f"broker {request.broker_id} shuts down"
        return self._controller.decide(words, lambda state, moment: shut_down(state, request, moment))

    # Parts of a leadership

    async def _open_session(self) -> ZooKeeper:
        session = self._make_session()
        await session.connect(self._connection_timeout_ms)
        return session

    def _own_endpoint(self) -> Endpoint | None:
        for at in self._composition.listeners:
            if at.kind == "controller":
                host, port = at.advertised_host or at.host, at.advertised_port or at.port
                return Endpoint(at.name, host, port, at.security_protocol)
        return None

    def _make_pushes(
        self, *, replica_failed: ReplicaFailed, stale_controller: StaleController
    ) -> ControllerPushes:
        return ControllerPushes(
            runtime=self._runtime,
            events=self._events,
            listener=self._listener,
            send=self._push,
            replica_failed=replica_failed,
            stale_controller=stale_controller,
            tells=reads_tree,
        )

    def _push(self, broker_id: int, request: Message, timeout_ms: float) -> Completion[Message]:
        broker = self._composition.metadata.image.brokers.get(broker_id)
        at = None if broker is None else reached_at(broker, self._listener)
        listener = self._listener if at is None else at.listener
        return self._composition.peers.channel(broker_id, listener, "pushes").send(request, timeout_ms)
