"""One leadership of the quorum, as the tree and its brokers see it: claimed, copied once, then followed.

Whatever fails begins the next attempt: a new session, a new claim, the tree read once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from blumfeld.metadata.brokers.migration import MigrationState, migration_state
from blumfeld.metadata.brokers.registration import elect_left_over as elect_left_over_in_log
from blumfeld.metadata.decision import ControllerDecision, ControllerState, Moment
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.spi.cluster import Endpoint, ImageDelta
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import Composition, EventLog
from blumfeld.spi.migration import MigratingController
from blumfeld.spi.runtime import Task, pause
from blumfeld.spi.scheduler import Lane
from blumfeld.spi.storage import TopicPartition
from blumfeld.spi.zookeeper import NoNodeError, Watch, ZooKeeper, ZooKeeperError
from blumfeld.wire.errors import BrokerError
from blumfeld.wire.messages.metadata_records import RegisterBrokerRecord
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.controller.broker_lives import (
    NO_RESPONSE,
    broker_came,
    broker_went,
    brokers_went_before,
    came_again,
    elect_left_over,
    end_reassignments,
    replicas_failed,
    replicas_restored,
)
from blumfeld_consensus_zk_compat.controller.watched_nodes import WatchedNode, broker_news, seen_brokers
from blumfeld_consensus_zk_compat.migration.claim import Claimed, NotNow, claim, give_back
from blumfeld_consensus_zk_compat.migration.copying import (
    copied_records,
    is_untouched,
    of_tree,
    unfinished,
    unready,
)
from blumfeld_consensus_zk_compat.migration.mirror import Mirror
from blumfeld_consensus_zk_compat.migration.progress import Progress
from blumfeld_consensus_zk_compat.pushes.controller_pushes import ControllerPushes
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms import ControllerNode, MigrationNode, TreeError
from blumfeld_consensus_zk_compat.tree.forms_topics import decode_log_dir_event
from blumfeld_consensus_zk_compat.tree.loading import Loaded, loaded
from blumfeld_consensus_zk_compat.tree.writing import TreeWriter

RETRY_MS = 1_000
"""Pause before the next attempt."""
WRITTEN_CHECK_MS = 50
MakePushes = Callable[..., ControllerPushes]


class Leadership:
    """Made when this node leads → stopped when it leads no more.

    :param open_session: makes a session and connects it
    :param endpoint: where brokers reach this controller
    :param make_pushes: (``replica_failed``, ``stale_controller``) → pushes to brokers that read the tree
    """

    def __init__(
        self,
        controller: MigratingController,
        composition: Composition,
        events: EventLog,
        *,
        open_session: Callable[[], Any],
        endpoint: Callable[[], Endpoint | None],
        make_pushes: MakePushes,
        chroot: str,
    ) -> None:
        self._controller = controller
        self._composition = composition
        self._runtime = composition.runtime
        self._events = events
        self._open_session = open_session
        self._endpoint = endpoint
        self._make_pushes = make_pushes
        self._chroot = chroot
        self._mirror: Mirror | None = None
        self._watched: list[WatchedNode | Progress] = []
        self._brokers: dict[int, RegisterBrokerRecord] = {}
        self._lost_replicas: dict[int, dict[TopicPartition, None]] = {}
        self._session: ZooKeeper | None = None
        self._failure: Completion[None] = Completion()
        self._reason = ""
        self._stopped = False
        self._task: Task = self._runtime.spawn(self._work(), f"migration in epoch {controller.id.epoch}")

    def changed(self, image: MetadataImage, delta: ImageDelta) -> None:
        """Take a step of the committed image."""
        if self._mirror is not None:
            self._mirror.changed(image, delta)

    async def written(self) -> None:
        """Return when the tree has what the image has, or the leadership is stopped."""
        while not self._stopped:
            if self._mirror is not None and await self._mirror.written():
                return
            await pause(self._runtime, WRITTEN_CHECK_MS)  # the next attempt writes the difference

    def stop(self) -> None:
        """Follow no more."""
        self._stopped = True
        self._task.cancel()
        self._end_attempt()
        session, self._session = self._session, None
        if session is not None:
            self._runtime.spawn(_closed(session), "close the session of a leadership that is over")

    # Attempts

    async def _work(self) -> None:
        while not self._stopped:
            self._failure = Completion()
            try:
                await self._attempt()
            except NotNow as reason:
                self._tell(str(reason))
            except (ZooKeeperError, TreeError, BrokerError, OSError) as error:  # TimeoutError is an OSError
                self._tell(f"the ZooKeeper can't be followed: {error}")
            except Exception as defect:
                self._events.error("the migration met a defect", exc_info=defect)
            self._end_attempt()
            session, self._session = self._session, None
            if session is not None:
                await _closed(session)
            await pause(self._runtime, RETRY_MS)

    async def _attempt(self) -> None:
        session = self._session = await self._open_session()
        # Read through the log: what is decided now is what is committed in this epoch.
        await self._decide("look at the migration", _nothing)
        image = await self._copied_image()
        is_copied = migration_state(image) is MigrationState.MIGRATION
        if not is_copied:
            await self._check_ready(session, image)
        claimed = await self._claim(session, image, is_copied=is_copied)
        steps = loaded(session, section_kinds=image.section_kinds, in_migration=True)
        tree = await self._runtime.scheduler.completed(Lane.METADATA, steps)
        if not is_copied:
            await self._copy(session, claimed, tree)
        await self._follow(session, claimed, tree)
        await self._take_over(() if is_copied else tree.restarted)
        self._reason = ""
        self._events.info(
            "the ZooKeeper follows the log", controller_epoch=claimed.elected.id.epoch, znodes=tree.znodes
        )
        await self._failure

    def _end_attempt(self) -> None:
        for watched in self._watched:
            watched.stop()
        self._watched.clear()
        mirror, self._mirror = self._mirror, None
        if mirror is not None:
            mirror.stop()

    def _failed(self, error: BaseException) -> None:
        if not self._failure.done:
            self._failure.fail(error)

    def _tell(self, reason: str) -> None:
        if reason != self._reason:
            self._reason = reason
            self._events.warning("the migration waits", reason=reason)

    # The claim

    async def _check_ready(self, session: ZooKeeper, image: MetadataImage) -> None:
        """See that nothing is in the way of the first claim.

        :raises NotNow: something is
        """
        if not is_untouched(image):
            raise NotNow("the quorum has a cluster of its own: format the controllers anew to migrate one")
        steps = loaded(session, section_kinds=image.section_kinds)
        tree = await self._runtime.scheduler.completed(Lane.METADATA, steps)
        if tree.image.cluster_id != self._composition.cluster_id:
            own = self._composition.cluster_id
            raise NotNow(f"the tree has cluster {tree.image.cluster_id}, and this controller is of {own}")
        if not tree.image.registrations:
            raise NotNow("no broker is registered in the tree")
        if others := unready(tree.image.registrations):
            raise NotNow(f"brokers {others} run without metadata_migration_enable, or are no Blumfeld")
        if reason := unfinished(tree):
            raise NotNow(f"the tree's controller has not finished: {reason}")

    async def _claim(self, session: ZooKeeper, image: MetadataImage, *, is_copied: bool) -> Claimed:
        own_id = self._controller.id
        own = ControllerNode(own_id.node_id, self._runtime.now_ms(), own_id.epoch, self._endpoint())
        progress = MigrationNode(
            kraft_metadata_offset=image.offset if is_copied else -1,
            kraft_controller_id=own_id.node_id,
            kraft_metadata_epoch=image.epoch if is_copied else -1,
            kraft_controller_epoch=own_id.epoch,
        )
        return await claim(session, own, progress, is_copied=is_copied)

    async def _copy(self, session: ZooKeeper, claimed: Claimed, tree: Loaded) -> None:
        """Bring the tree into the log, whole or not at all."""
        reason = unfinished(tree)
        others = unready(tree.image.registrations)
        if reason or others:
            await give_back(session, claimed.elected.epoch_version, claimed.migration_version)
            raise NotNow(reason or f"brokers {others} came without metadata_migration_enable")
        records = await self._runtime.scheduler.completed(Lane.METADATA, copied_records(tree))
        await self._decide("the copy of the tree", lambda *_: ControllerDecision(records, NO_RESPONSE))
        self._events.info(
            "the tree is copied into the log", topics=len(tree.image.topics), records=len(records)
        )

    # Following

    async def _follow(self, session: ZooKeeper, claimed: Claimed, tree: Loaded) -> None:
        mirror = Mirror(
            claimed.elected.id,
            zookeeper=session,
            runtime=self._runtime,
            writer=TreeWriter(
                tree.versions, claimed.elected.id.epoch, session.request_bytes_max, self._chroot
            ),
            pushes=self._make_pushes(replica_failed=self._replicas_failed, stale_controller=_no_other),
            failed=self._failed,
        )

        def copied(copy: Completion[Any]) -> None:
            # Within the step at which the copy was made: those behind it must not be missed.
            if copy.error is None and not self._stopped:
                self._brokers = {
                    broker_id: registration
                    for broker_id, registration in copy.result().registrations.items()
                    if registration.is_migrating_zk_broker
                }
                mirror.follow(tree.image, copy.result())

        self._mirror = mirror
        copy = self._controller.copied_image()
        copy.when_done(copied)
        await copy
        self._watched.append(
            Progress(
                session, self._runtime, claimed, self._controller.id, lambda: mirror.offset, self._failed
            )
        )

    async def _take_over(self, restarted: Sequence[tuple[TopicPartition, Sequence[int]]]) -> None:
        """Finish what the tree's controller, or an earlier leader, left open; then follow the brokers' lives."""
        session = self._session
        assert session is not None
        await self._decide("brokers that went before", brokers_went_before)
        await self._decide("brokers that came again", partial(came_again, members=restarted))
        await self._decide("left-over elections", elect_left_over_in_log)
        await self._decide("left-over reassignments", end_reassignments)
        brokers, events = partial(self._read_brokers, session), partial(self._read_log_dir_events, session)
        self._watched.append(WatchedNode(self._runtime, "brokers", brokers, self._failed))
        self._watched.append(WatchedNode(self._runtime, "log directory events", events, self._failed))

    def _decide(
        self, words: str, decide: Callable[[ControllerState, Moment], ControllerDecision]
    ) -> Completion[Message]:
        return self._controller.decide(words, decide)

    async def _copied_image(self) -> MetadataImage:
        image: Any = await self._controller.copied_image()
        return image  # type: ignore[no-any-return]

    # Brokers that read the tree

    async def _read_brokers(self, session: ZooKeeper, watch: Watch) -> None:
        seen = {
            broker_id: of_tree(registration)
            for broker_id, registration in (await seen_brokers(session, watch, self._decoded)).items()
        }
        for other in unready(seen):
            # It would not ask this controller for anything: what it led could not change any more.
            self._events.error(
                "a broker takes no part in the migration, and is not registered", broker_id=other
            )
            del seen[other]
        news = broker_news(self._brokers, seen)
        for went in news.went:
            self._events.warning("a broker went", broker_id=went.broker_id, broker_epoch=went.broker_epoch)
            await self._went(went.broker_id, went.broker_epoch)
        for came in (*news.came, *news.changed):
            self._events.info("a broker came", broker_id=came.broker_id, broker_epoch=came.broker_epoch)
            await self._came(came)
        self._brokers = seen

    async def _went(self, broker_id: int, broker_epoch: int) -> None:
        if lost := self._lost_replicas.pop(broker_id, None):
            restored = partial(replicas_restored, broker_id=broker_id, partitions=tuple(lost))
            await self._decide(f"replicas of broker {broker_id} are forgotten", restored)
        decide = partial(broker_went, broker_id=broker_id, broker_epoch=broker_epoch)
        await self._decide(f"broker {broker_id} went", decide)

    async def _came(self, registration: RegisterBrokerRecord) -> None:
        """Register a broker, behind the end of the process that the log may still have: one of the quorum's."""
        broker_id = registration.broker_id
        await self._decide(f"broker {broker_id} came", partial(_former_went, registration))
        await self._decide(f"broker {broker_id} came", partial(broker_came, registration=registration))
        await self._decide("left-over elections", elect_left_over)

    def _replicas_failed(self, broker_id: int, partitions: Sequence[TopicPartition]) -> None:
        self._lost_replicas.setdefault(broker_id, {}).update(dict.fromkeys(partitions))
        decide = partial(replicas_failed, broker_id=broker_id, partitions=partitions)
        self._decide(f"replicas of broker {broker_id} failed", decide)

    async def _read_log_dir_events(self, session: ZooKeeper, watch: Watch) -> None:
        try:
            names = await session.children(paths.LOG_DIR_EVENTS, watch)
        except NoNodeError:
            await session.exists(paths.LOG_DIR_EVENTS, watch)
            return
        for path in (f"{paths.LOG_DIR_EVENTS}/{name}" for name in names):
            try:
                node = await session.get(path)
            except NoNodeError:
                continue
            broker_id = self._decoded(decode_log_dir_event, path, node.data)
            if broker_id is not None and self._mirror is not None:
                self._events.warning("a broker has lost a log directory", broker_id=broker_id)
                self._mirror.resend(broker_id)
            await session.delete(path)

    def _decoded(self, decode: Callable[[str, bytes], Any], path: str, data: bytes) -> Any:
        try:
            return decode(path, data)
        except TreeError as error:
            self._events.error("a node can't be read, and is left alone", error=str(error))
            return None


def _nothing(_state: ControllerState, _moment: Moment) -> ControllerDecision:
    return ControllerDecision([], NO_RESPONSE, atomic=False)


def _former_went(
    registration: RegisterBrokerRecord, state: ControllerState, moment: Moment
) -> ControllerDecision:
    """End the process that has this id in the log, unless it is the same one."""
    known = state.image.brokers.get(registration.broker_id)
    if known is None or known.epoch == registration.broker_epoch:
        return _nothing(state, moment)
    return broker_went(state, moment, broker_id=known.broker_id, broker_epoch=known.epoch)


def _no_other() -> None:
    """A broker knows a later controller: the next write says so, too."""


async def _closed(session: ZooKeeper) -> None:
    try:
        await session.close()
    except (ZooKeeperError, OSError):
        return
