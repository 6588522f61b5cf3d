"""The election of the controller, as in Kafka 3.9: the node that creates ``/controller`` is elected.

The ephemeral node and the next ``/controller_epoch`` are written in one ``multi``, under the epoch's version, so one
epoch has one controller. The version of ``/controller_epoch`` after that write is what fences: each later ``multi`` of
the controller checks it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import Controller as ControllerId
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.runtime import Runtime, Timer
from blumfeld.spi.zookeeper import (
    BadVersionError,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    Node,
    NodeExistsError,
    NoNodeError,
    Operation,
    SessionExpiredError,
    SessionState,
    Set,
    WatchEvent,
    ZooKeeper,
    ZooKeeperError,
)
from blumfeld_consensus_zk_compat.tree.forms import (
    ControllerNode,
    TreeError,
    decode_controller,
    decode_epoch,
    decode_migration,
    encode_controller,
    encode_epoch,
)
from blumfeld_consensus_zk_compat.tree.paths import CONTROLLER, CONTROLLER_EPOCH, MIGRATION

T = TypeVar("T")

RETRY_MS = 1_000
"""Pause before the next attempt after an error that no event will follow."""


class Elected(msgspec.Struct, frozen=True):
    """This node is the controller."""

    id: ControllerId
    epoch_version: int
    """Version of ``/controller_epoch``, for the check of each write."""


class Election:
    """This node's part in the elections of one session, from :meth:`begin` to :meth:`stop`.

    :param won: is told that this node is the controller
    :param lost: is told that it isn't any more: another one is, or the session is over
    :param seen: is told of each controller that is seen, ``None`` if there is none
    :param refused: is told why no election is held: the cluster belongs to KRaft
    :param kraft_seen: is told of each controller of KRaft that is seen, by a node that obeys it; ``None`` refuses
    """

    def __init__(
        self,
        *,
        zookeeper: ZooKeeper,
        runtime: Runtime,
        events: EventLog,
        node_id: int,
        won: Callable[[Elected], None],
        lost: Callable[[], None],
        seen: Callable[[int | None], None],
        refused: Callable[[str], None],
        kraft_seen: Callable[[ControllerNode], None] | None = None,
    ) -> None:
        self._kraft_seen = kraft_seen
        self._zookeeper = zookeeper
        self._runtime = runtime
        self._events = events
        self._node_id = node_id
        self._won = won
        self._lost = lost
        self._seen = seen
        self._refused = refused
        self._stopped = False
        self._elected: Elected | None = None
        self._reason: str | None = None
        """Why no election is held, as it was told last."""
        self._retry: Timer | None = None
        self._stands_from_ms = 0.0
        self._turn = 0
        """The number of the look whose answers count: those of an earlier look are late."""

    def begin(self) -> None:
        """Look for a controller, and stand for election if there is none."""
        self._look()

    def stop(self) -> None:
        """Stand no more. ``/controller`` is left to the end of the session."""
        self._stopped = True
        self._turn += 1
        self._elected = None
        if self._retry is not None:
            self._retry.cancel()

    def give_up(self, pause_ms: float = 0.0) -> None:
        """Delete our own ``/controller``, then stand again with the others.

        :param pause_ms: how long the others have before this node stands again
        """
        elected, self._elected = self._elected, None
        if elected is None:
            return
        self._turn += 1
        self._stands_from_ms = self._runtime.monotonic_ms() + pause_ms
        delete: list[Operation] = [Check(CONTROLLER_EPOCH, elected.epoch_version), Delete(CONTROLLER)]
        self._zookeeper.multi(delete).when_done(self._then(self._look_behind))

    def resign(self) -> Completion[None]:
        """Delete our own ``/controller``, and stand no more. Completes when it is gone, or can't be deleted."""
        elected = self._elected
        self.stop()
        gone: Completion[None] = Completion()
        if elected is None:
            gone.complete(None)
        else:
            delete: list[Operation] = [Check(CONTROLLER_EPOCH, elected.epoch_version), Delete(CONTROLLER)]
            self._zookeeper.multi(delete).when_done(lambda _: gone.complete(None))
        return gone

    def verify(self) -> None:
        """Look whether another node was elected: a broker has said so."""
        if self._elected is not None:
            self._zookeeper.get(CONTROLLER_EPOCH).when_done(partial(self._verified, self._elected))

    def _verified(self, elected: Elected, done: Completion[Node]) -> None:
        later = done.error is None and done.result().stat.version != elected.epoch_version
        if later and elected is self._elected:
            self._lose()
            self._look()

    def state_changed(self, state: SessionState) -> None:
        """The session has another state."""
        if self._stopped:
            return
        if state is SessionState.EXPIRED:
            self._lose()
            self.stop()
        elif state is SessionState.CONNECTED:
            self._look()

    # What is there

    def _look(self, _: WatchEvent | None = None) -> None:
        if self._stopped:
            return
        self._turn += 1
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._zookeeper.get(CONTROLLER, self._look).when_done(self._then(self._looked))

    def _then(self, answered: Callable[[Completion[T]], None]) -> Callable[[Completion[T]], None]:
        """Returns ``answered``, unless a later look has begun when the answer comes."""
        turn = self._turn

        def answer(done: Completion[T]) -> None:
            if turn == self._turn:
                answered(done)

        return answer

    def _looked(self, done: Completion[Node]) -> None:
        if isinstance(done.error, NoNodeError):
            self._lose()
            self._seen(None)
            self._stand()
        elif done.error is not None:
            self._failed(done.error)
        else:
            self._found(done.result())

    def _found(self, node: Node) -> None:
        try:
            controller = decode_controller(CONTROLLER, node.data)
        except TreeError as error:
            self._lose()
            self._refuse(str(error))
            return
        own = node.stat.ephemeral_owner == self._zookeeper.session_id != 0
        if own and self._elected is not None:
            return
        self._lose()
        if controller.kraft_controller_epoch >= 0 and self._kraft_seen is not None:
            self._kraft_seen(controller)
        elif controller.kraft_controller_epoch >= 0:
            self._refuse(f"/controller is held by KRaft controller {controller.broker_id}")
        elif own:
            # The answer to our election was lost, or we gave up and our deletion was: which, no one knows any more.
            self._zookeeper.delete(CONTROLLER, node.stat.version).when_done(self._then(self._look_behind))
        else:
            self._seen(controller.broker_id)

    # Standing for election

    def _stand(self) -> None:
        pause_ms = self._stands_from_ms - self._runtime.monotonic_ms()
        if pause_ms > 0:
            self._later(pause_ms)
            return
        self._zookeeper.get(MIGRATION).when_done(self._then(self._migration_read))

    def _migration_read(self, done: Completion[Node]) -> None:
        """Before KRaft's controllers take the cluster over (``kraft_controller_epoch``), brokers still elect."""
        if done.error is not None and not isinstance(done.error, NoNodeError):
            self._failed(done.error)
            return
        data = b"" if done.error is not None else done.result().data
        try:
            begun = bool(data) and decode_migration(MIGRATION, data).kraft_controller_epoch >= 0
        except TreeError as error:
            self._refuse(str(error))
            self._later()
            return
        if begun:
            # A rollback of the migration ends with the operator deleting this node, and no watch is left on it.
            self._refuse(f"{MIGRATION} says that KRaft's controllers have taken the cluster over")
            self._later()
        else:
            self._zookeeper.get(CONTROLLER_EPOCH).when_done(self._then(self._epoch_read))

    def _epoch_read(self, done: Completion[Node]) -> None:
        if isinstance(done.error, NoNodeError):
            self._zookeeper.create(CONTROLLER_EPOCH, encode_epoch(0)).when_done(self._then(self._look_behind))
        elif done.error is not None:
            self._failed(done.error)
        else:
            node = done.result()
            try:
                epoch = decode_epoch(CONTROLLER_EPOCH, node.data) + 1
            except TreeError as error:
                self._refuse(str(error))
                self._later()
                return
            self._run(Elected(ControllerId(self._node_id, epoch), node.stat.version + 1))

    def _run(self, elected: Elected) -> None:
        node = encode_controller(ControllerNode(self._node_id, self._runtime.now_ms()))
        election = self._zookeeper.multi(
            [
                Create(CONTROLLER, node, ephemeral=True),
                Set(CONTROLLER_EPOCH, encode_epoch(elected.id.epoch), elected.epoch_version - 1),
            ]
        )
        election.when_done(self._then(lambda done: self._ended(elected, done.error)))

    def _ended(self, elected: Elected, error: BaseException | None) -> None:
        if isinstance(error, NodeExistsError | BadVersionError):
            self._look()
        elif error is not None:
            self._failed(error)
        else:
            self._elected = elected
            self._events.info("elected as controller", epoch=elected.id.epoch)
            self._seen(self._node_id)
            self._won(elected)
            self._look()  # to watch it

    # Failures

    def _lose(self) -> None:
        if self._elected is not None:
            self._elected = None
            self._lost()

    def _look_behind(self, done: Completion[Any]) -> None:
        """Look, after a request whose failure means only that another node was faster."""
        if done.error is None or isinstance(done.error, NoNodeError | NodeExistsError | BadVersionError):
            self._look()
        else:
            self._failed(done.error)

    def _failed(self, error: BaseException) -> None:
        """A request failed. After a lost connection the session's next state tells how to go on."""
        if isinstance(error, ConnectionLostError | SessionExpiredError):
            if self._zookeeper.state is SessionState.CONNECTED:
                self._later()
            return
        if not isinstance(error, ZooKeeperError):
            raise error
        self._events.warning("an election failed; tried again", error=str(error))
        self._later()

    def _refuse(self, reason: str) -> None:
        if reason != self._reason:
            self._reason = reason
            self._refused(reason)

    def _later(self, pause_ms: float = RETRY_MS) -> None:
        self._retry = self._runtime.call_later(pause_ms, self._look)
