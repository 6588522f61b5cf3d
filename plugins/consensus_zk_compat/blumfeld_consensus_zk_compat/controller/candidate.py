"""This node's part in the elections of one session, and its term while it is elected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from blumfeld.config.values import BrokerConfig
from blumfeld.metadata.image.sections import NO_SECTIONS, SectionKinds
from blumfeld.metadata.image.step import BrokenMetadata
from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import Controller as ControllerId
from blumfeld.spi.hooks import EventLog, Feature
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import Runtime, Task
from blumfeld.spi.scheduler import Lane
from blumfeld.spi.zookeeper import BadVersionError, Check, Delete, SessionState, ZooKeeper, ZooKeeperError
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.controller.election import Elected, Election
from blumfeld_consensus_zk_compat.controller.term import MakePushes, Term
from blumfeld_consensus_zk_compat.controller.watched_nodes import TopicWatches
from blumfeld_consensus_zk_compat.counts import Counts
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms import ControllerNode, TreeError
from blumfeld_consensus_zk_compat.tree.loading import Loaded, loaded
from blumfeld_consensus_zk_compat.tree.writing import TreeWriter

SHORT_TERM_MS = 10_000
_DECIDED_ON = tuple(f"{paths.config(kind)}/" for kind in paths.CONTROLLER_CONFIG_KINDS)
PAUSE_MS = 1_000
"""How long others may stand alone after a term that ended early: another node may fare better."""


class Candidate:
    """Made → begun → stopped, for one session.

    :param chroot: of the session: "" or ``/kafka``
    :param seen: is told of each controller's broker id that is seen, ``None`` if there is none
    :param refused: is told why no election is held: the cluster belongs to KRaft
    :param kraft_seen: as of :class:`Election`
    :param counts: of the node; those of one candidate, if none are given
    :param unreadable: is told of the path of each node that a take-over left out, and of the error
    """

    def __init__(
        self,
        *,
        zookeeper: ZooKeeper,
        runtime: Runtime,
        events: EventLog,
        node_id: int,
        config: BrokerConfig,
        make_pushes: MakePushes,
        seen: Callable[[int | None], None],
        refused: Callable[[str], None],
        chroot: str = "",
        features: Sequence[Feature] = (),
        section_kinds: SectionKinds = NO_SECTIONS,
        counts: Counts | None = None,
        unreadable: Callable[[str, str], None] = lambda _, __: None,
        kraft_seen: Callable[[ControllerNode], None] | None = None,
    ) -> None:
        self._zookeeper = zookeeper
        self._runtime = runtime
        self._events = events
        self._config = config
        self._make_pushes = make_pushes
        self._chroot = chroot
        self._features = features
        self._section_kinds = section_kinds
        self._election = Election(
            zookeeper=zookeeper,
            runtime=runtime,
            events=events,
            node_id=node_id,
            won=self._won,
            lost=self._lost,
            seen=seen,
            refused=refused,
            kraft_seen=kraft_seen,
        )
        self._taking_over: Task | None = None
        self._term: Term | None = None
        self._changed_meanwhile: dict[str, None] = {}
        """Nodes that changed since the election was won: the load may have read them before."""
        self._won_ms = 0.0
        self.elections_won = 0
        self.counts = counts or Counts()
        self._unreadable = unreadable
        self._fences = RepeatedEvents(runtime)

    @property
    def controller(self) -> ControllerId | None:
        """This node, while it is the controller and has loaded the tree."""
        return None if self._term is None else self._term.active.id

    @property
    def term(self) -> Term | None:
        """The term of this node, once it has loaded the tree."""
        return self._term

    def begin(self) -> None:
        """Stand for election from now on. The session is connected."""
        self._zookeeper.on_state(self._state_changed)
        self._election.begin()

    def submit(self, command: Message, reply: Completion[Message]) -> None:
        """As ``ActiveController.submit``; NOT_CONTROLLER while there is no term."""
        if self._term is None:
            reply.fail(BrokerError(ErrorCode.NOT_CONTROLLER))
        else:
            self._term.active.submit(command, reply)

    def node_changed(self, path: str) -> None:
        """As ``Term.node_changed``; the term hears of it when the tree is loaded. Without a term under way or at work
        it changes nothing: the load of the next one reads the node. Nor does a node that no controller decides on.
        """
        if not path.startswith(_DECIDED_ON):
            return
        if self._term is not None:
            self._term.node_changed(path)
        elif self._taking_over is not None:
            self._changed_meanwhile[path] = None

    async def resign(self) -> None:
        """Decide no more, give ``/controller`` up and stand no more."""
        self._end_term()
        await self._election.resign()

    def stop(self) -> None:
        """Decide no more and stand no more. ``/controller`` goes with the session."""
        self._end_term()
        self._election.stop()

    def _state_changed(self, state: SessionState) -> None:
        if self._term is not None and state is not SessionState.EXPIRED:
            if state is SessionState.SUSPENDED:
                self._term.active.suspend()
            else:
                self._term.active.resume()
        self._election.state_changed(state)

    # Terms

    def _won(self, elected: Elected) -> None:
        self._end_term()
        self.elections_won += 1
        self._won_ms = self._runtime.monotonic_ms()
        name = f"take over as controller {elected.id.epoch}"
        self._taking_over = self._runtime.spawn(self._take_over(elected), name)

    def _lost(self) -> None:
        self._events.warning("this node is the controller no more")
        self._end_term()

    def _end_term(self) -> None:
        if self._taking_over is not None:
            self._taking_over.cancel()
            self._taking_over = None
        self._changed_meanwhile.clear()
        term, self._term = self._term, None
        if term is not None:
            term.stop()

    async def _take_over(self, elected: Elected) -> None:
        try:
            tree, topics = await self._load(elected)
        except Exception as error:
            # Whatever it is: a node that keeps ``/controller`` must work as the controller.
            is_known = isinstance(error, ZooKeeperError | TreeError | BrokenMetadata)
            defect = {} if is_known else {"exc_info": error}
            self._taking_over = None
            self._events.error("the tree can't be taken over; tried again", error=str(error), **defect)
            self._election.give_up(PAUSE_MS)
            return
        self._taking_over = None
        term = self._term = Term(
            elected=elected,
            tree=tree,
            load_ms=self._runtime.monotonic_ms() - self._won_ms,
            topics=topics,
            zookeeper=self._zookeeper,
            chroot=self._chroot,
            runtime=self._runtime,
            events=self._events,
            config=self._config,
            features=self._features,
            make_pushes=self._make_pushes,
            stale=self._election.verify,
            fenced=partial(self._note_fenced, elected.id.epoch),
            dropped=self._dropped,
        )
        if self._zookeeper.state is SessionState.SUSPENDED:
            term.active.suspend()
        term.take_over()
        for path in self._changed_meanwhile:
            term.node_changed(path)
        self._changed_meanwhile.clear()
        for path, said in tree.unreadable.items():
            self._unreadable(path, said)

    async def _load(self, elected: Elected) -> tuple[Loaded, TopicWatches]:
        """Load the tree, as often as it takes to have it in a form that can be controlled."""
        while True:
            topics = TopicWatches()
            steps = loaded(
                self._zookeeper,
                section_kinds=self._section_kinds,
                watch_of=topics.watch_of,
                for_controller=True,
            )
            tree = await self._runtime.scheduler.completed(Lane.METADATA, steps)
            if tree.versions.controller_epoch != elected.epoch_version:
                raise BadVersionError(paths.CONTROLLER_EPOCH, "another controller was elected")
            if tree.without_id:
                writer = TreeWriter(
                    tree.versions, elected.id.epoch, self._zookeeper.request_bytes_max, self._chroot
                )
                ids = {name: self._runtime.new_uuid() for name in tree.without_id}
                for multi in writer.topic_ids(tree.without_id, ids):
                    await self._zookeeper.multi(multi)
            elif tree.marked and not self._config.bool("delete.topic.enable"):
                check = Check(paths.CONTROLLER_EPOCH, elected.epoch_version)
                for topic in tree.marked:
                    await self._zookeeper.multi([check, Delete(paths.deletion(topic.name))])
            else:
                return tree, topics

    def _dropped(self, error: BaseException) -> None:
        self._term = None
        self._events.warning("the controller gives up; the next one reads the tree", error=str(error))
        lasted_ms = self._runtime.monotonic_ms() - self._won_ms
        self._election.give_up(PAUSE_MS if lasted_ms < SHORT_TERM_MS else 0.0)

    def _note_fenced(self, epoch: int) -> None:
        self.counts.fenced_writes += 1
        said = "a controller's write was fenced: another controller was elected, or the session is over"
        self._fences.say(self._events.warning, said, epoch, epoch=epoch)
