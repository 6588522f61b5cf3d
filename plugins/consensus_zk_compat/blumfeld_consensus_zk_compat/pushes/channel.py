"""The queue of requests to one broker: one request in flight, later ones joined while they wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.scheduler import Lane, Work
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import BrokerError, ErrorCode, known_code
from blumfeld.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from blumfeld.wire.messages.stop_replica import StopReplicaResponse
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.change import Change
from blumfeld_consensus_zk_compat.ports import ReplicaFailed, StaleController
from blumfeld_consensus_zk_compat.pushes.plan import (
    DURING_DELETE,
    SLICE_PARTITIONS,
    Key,
    LiveBrokers,
    Placed,
    Sender,
    Stop,
    TreeTopics,
    hosted,
    leader_and_isr,
    removed_from,
    stop_replica,
    told,
    update_metadata,
)

RETRY_MS = 100
"""Pause before a request is sent again that was not answered, as in Kafka."""
TIMEOUT_MS = 30_000
"""``controller.socket.timeout.ms``, a key that is gone from Kafka 4."""

Stopped: TypeAlias = Completion[dict[TopicPartition, ErrorCode]]


class Batch:
    """What waits to be sent to a broker. It is sent in the order LeaderAndIsr, UpdateMetadata, StopReplica; before
    them UpdateMetadata without partitions, if brokers have changed: a follower needs its leader's address.

    Partitions that another leader has come before those whose ISR alone changed, and those that the broker leads before
    others. UpdateMetadata of a slice comes right behind its LeaderAndIsr: clients wait for both."""

    def __init__(self) -> None:
        self.is_full = False
        """Everything is sent, as the tree has it when its turn comes."""
        self.behind: Batch | None = None
        """The batch before a full one, which need not send the same again."""
        self.brokers_changed = False
        self.leads: dict[Key, Placed] = {}
        self.shows: dict[Key, Placed] = {}
        self.stops: dict[TopicPartition, Stop] = {}
        self.sent: list[Completion[None]] = []
        """Those that wait for the end of this batch."""
        self.stopped: list[tuple[Sequence[TopicPartition], Stopped]] = []
        self.codes: dict[TopicPartition, ErrorCode] = {}
        """Answers to StopReplica."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to send."""
        return not (self.is_full or self.brokers_changed or self.leads or self.shows or self.stops)

    def takes(self, change: Change) -> bool:
        """Whether a change may be joined: nothing of it must come behind what is sent later in this batch."""
        if any(
            TopicPartition(step.topic, step.after.partition) in self.stops
            for step in change.partitions
            if step.after
        ):
            return False  # a replica that is stopped, and then placed again
        created = {topic.name for topic in change.topics_created}
        return not created or not any(placed.topic in created for placed in self.shows.values())

    def add(self, change: Change, broker_id: int) -> None:
        """Join a change."""
        self.brokers_changed = self.brokers_changed or bool(change.brokers)
        for step in change.partitions:
            after = step.after
            if after is None:
                if step.before is not None:
                    key = (step.topic_id, step.before.partition)
                    self.leads.pop(key, None)
                    self.shows[key] = Placed(step.topic, step.topic_id, step.before, deleted=True)
                continue
            if after.partition_epoch < 0:
                continue  # it has no state in the tree yet: its first state comes as a change
            key = (step.topic_id, after.partition)
            if broker_id in removed_from(step):
                self.leads.pop(key, None)
                self.stops[TopicPartition(step.topic, after.partition)] = Stop(after.leader_epoch, True)
            if self.is_full:
                continue
            if told(step, broker_id):
                earlier = self.leads.get(key)
                had_state = step.before is not None and step.before.partition_epoch >= 0
                is_new = not had_state or (earlier is not None and earlier.is_new)
                is_moved = step.before is None or step.before.leader != after.leader
                is_moved = is_moved or (earlier is not None and earlier.is_moved)
                self.leads[key] = Placed(step.topic, step.topic_id, after, is_new, is_moved=is_moved)
            self.shows[key] = Placed(step.topic, step.topic_id, after)

    def end(self) -> None:
        """Tell those that wait: all is sent."""
        for waiting in self.sent:
            waiting.complete(None)
        for partitions, stopped in self.stopped:
            stopped.complete({at: self.codes.get(at, ErrorCode.UNKNOWN_SERVER_ERROR) for at in partitions})

    def drop(self) -> None:
        """Tell those that wait: the broker is gone, or the controller."""
        for waiting in self.sent:
            waiting.complete(None)
        for _, stopped in self.stopped:
            stopped.fail(OSError("the broker is gone, or this node isn't the controller any more"))


class BrokerChannel:
    """Sends to one process of a broker, from the first batch to :meth:`close`.

    :param send: sends one request to the broker
    :param live: the brokers that live, at each call
    """

    def __init__(
        self,
        *,
        broker_id: int,
        sender: Sender,
        topics: TreeTopics,
        live: Callable[[], LiveBrokers],
        send: Callable[[Message, float], Completion[Message]],
        runtime: Runtime,
        events: EventLog,
        replica_failed: ReplicaFailed,
        stale_controller: StaleController,
    ) -> None:
        self.broker_id = broker_id
        self._sender = sender
        self._topics = topics
        self._live = live
        self._send = send
        self._runtime = runtime
        self._events = events
        self._repeated = RepeatedEvents(runtime)
        self._replica_failed = replica_failed
        self._stale_controller = stale_controller
        self._queue: deque[Batch] = deque()
        self._under_way: Batch | None = None
        self._work: Work | None = None
        self._runs = False
        self._closed = False

    def begin(self, changes: Iterable[Change]) -> None:
        """Send these changes, which the tree has, and then everything else."""
        first = Batch()
        for change in changes:
            first.add(change, self.broker_id)
        full = Batch()
        full.is_full = True
        if not first.is_empty:
            first.brokers_changed, full.behind = True, first
            self._queue.append(first)
        self._queue.append(full)
        self._begin()

    def send_all(self) -> None:
        """Send everything. It replaces what waits, except orders to stop replicas, which come first."""
        kept = [batch for batch in self._queue if batch.stops or batch.stopped]
        full = Batch()
        full.is_full = True
        for batch in self._queue:
            full.sent += batch.sent
            batch.sent = []
            deleted = {key: placed for key, placed in batch.shows.items() if placed.deleted}
            full.shows.update(deleted)
            batch.leads, batch.shows, batch.is_full, batch.brokers_changed = {}, {}, False, False
        self._queue = deque([*kept, full])
        self._begin()

    def committed(self, change: Change) -> None:
        """Send what this broker is to know of a change, behind what waits."""
        self._last(lambda batch: batch.takes(change)).add(change, self.broker_id)
        self._begin()

    def brokers_changed(self) -> None:
        """Send the list of brokers that live."""
        self._last(lambda _: True).brokers_changed = True
        self._begin()

    def stop_replicas(self, partitions: Sequence[TopicPartition], *, delete: bool) -> Stopped:
        """As ``Pushes.stop_replicas``."""
        batch = self._last(lambda _: True)
        for at in partitions:
            known = self._topics.partition(at)
            epoch = DURING_DELETE if known is None else known.leader_epoch
            batch.stops[at] = Stop(epoch, delete or (at in batch.stops and batch.stops[at].delete))
        # What was to be led or followed first isn't any more. What is shown stays.
        batch.leads = {
            key: lead
            for key, lead in batch.leads.items()
            if TopicPartition(lead.topic, key[1]) not in batch.stops
        }
        stopped: Stopped = Completion()
        batch.stopped.append((tuple(partitions), stopped))
        self._begin()
        return stopped

    def pushed(self) -> Completion[None]:
        """As ``Pushes.pushed``."""
        last = self._queue[-1] if self._queue else self._under_way
        if last is None:
            return Completion.of(None)
        done: Completion[None] = Completion()
        last.sent.append(done)
        return done

    def close(self) -> None:
        """Send no more."""
        self._closed = True
        if self._work is not None:
            self._work.cancel()
        batches = [*([] if self._under_way is None else [self._under_way]), *self._queue]
        self._queue.clear()
        self._under_way = None
        for batch in batches:
            batch.drop()

    def _last(self, takes: Callable[[Batch], bool]) -> Batch:
        if not self._queue or not takes(self._queue[-1]):
            self._queue.append(Batch())
        return self._queue[-1]

    def _begin(self) -> None:
        if not self._runs and not self._closed:
            self._runs = True  # before: the work may be at its end when this returns
            self._work = self._runtime.scheduler.run(Lane.METADATA, self._send_batches(), self._ended)

    def _ended(self, _: None, defect: BaseException | None) -> None:
        self._runs = False
        if defect is None:
            return
        self._events.error("a batch of pushes met a defect", broker_id=self.broker_id, exc_info=defect)
        if self._under_way is not None:
            self._under_way.drop()
            self._under_way = None
        if self._queue:
            self._begin()

    def _send_batches(self) -> Steps[None]:
        yield None  # what else this turn brings is joined
        while self._queue:
            self._under_way = batch = self._queue.popleft()
            for request in self._requests(batch):
                if request is None:
                    yield None
                else:
                    answer = yield from self._answer(request)
                    self._note(batch, request, answer)
            self._under_way = None
            batch.end()

    def _requests(self, batch: Batch) -> Iterator[Message | None]:
        sender = self._sender
        if batch.is_full or batch.brokers_changed:
            yield update_metadata(sender, (), self._live())
        if batch.is_full:
            yield from self._everything(batch)
        else:
            yield from self._changes(batch)
        stops = list(batch.stops.items())
        for begin in range(0, len(stops), SLICE_PARTITIONS):
            yield stop_replica(sender, stops[begin : begin + SLICE_PARTITIONS])

    def _changes(self, batch: Batch) -> Iterator[Message | None]:
        shows = dict(batch.shows)
        leads = sorted(batch.leads.values(), key=self._urgency)
        for slice_ in _slices(leads):
            if slice_ is None:
                yield None
                continue
            yield leader_and_isr(self._sender, slice_, self._live())
            yield None
            yield from self._shown_with(slice_, shows)
        for slice_ in _slices(shows.values()):
            yield None if slice_ is None else update_metadata(self._sender, slice_, self._live())

    def _shown_with(self, slice_: list[Placed], shows: dict[Key, Placed]) -> Iterator[Message | None]:
        """Show what was told, and new topics whole: a broker that knew some of the partitions would take the topic for
        one of another size.

        :param shows: what is to be shown; it loses what this shows
        """
        new = {placed.topic_id for placed in slice_ if placed.is_new}
        keys = [placed.key for placed in slice_ if placed.topic_id not in new]
        keys += sorted(key for key in shows if key[0] in new) if new else []
        for shown in _slices([shows.pop(key) for key in keys if key in shows]):
            yield None if shown is None else update_metadata(self._sender, shown, self._live())

    def _urgency(self, placed: Placed) -> tuple[bool, bool]:
        return not placed.is_moved, placed.image.leader != self.broker_id

    def _everything(self, batch: Batch) -> Iterator[Message | None]:
        behind = batch.behind or Batch()
        for slice_ in _slices(_less(hosted(self._topics, self.broker_id), behind.leads)):
            yield None if slice_ is None else leader_and_isr(self._sender, slice_, self._live())
        shows = _both(_less(hosted(self._topics, None), behind.shows), batch.shows.values())
        for slice_ in _slices(shows):
            yield None if slice_ is None else update_metadata(self._sender, slice_, self._live())

    def _answer(self, request: Message) -> Steps[Message | None]:
        """Send until there is an answer; ``None`` if the broker can't be sent this at all."""
        while True:
            sent: Completion[Message] = Completion()
            self._send(request, TIMEOUT_MS).when_done(partial(_ends, sent))
            yield sent
            error = sent.error
            if error is None:
                answer = sent.result()
                code = getattr(answer, "error_code", 0)
                if code != ErrorCode.STALE_CONTROLLER_EPOCH:
                    return answer
                self._stale_controller()
            elif isinstance(error, BrokerError):
                self._say("a broker can't be sent a push", str(error))
                return None
            elif isinstance(error, OSError):
                self._say("a broker doesn't answer a push; sent again", str(error))
            else:
                raise error
            pause: Completion[None] = Completion()
            self._runtime.call_later(RETRY_MS, lambda pause=pause: pause.complete(None))  # type: ignore[misc]
            yield pause

    def _note(self, batch: Batch, request: Message, answer: Message | None) -> None:
        code = 0 if answer is None else getattr(answer, "error_code", 0)
        if code:
            self._say("a broker refused a push", known_code(code).name)
        if isinstance(answer, StopReplicaResponse):
            for told_error in answer.partition_errors:
                at = TopicPartition(told_error.topic_name, told_error.partition_index)
                batch.codes[at] = known_code(code or told_error.error_code)
        elif isinstance(answer, LeaderAndIsrResponse) and isinstance(request, LeaderAndIsrRequest):
            failed = _failed_replicas(request, answer)
            if failed:
                self._replica_failed(self.broker_id, failed)

    def _say(self, event: str, error: str) -> None:
        self._repeated.say(self._events.warning, event, (event, error), broker_id=self.broker_id, error=error)


def _ends(sent: Completion[Message], done: Completion[Message]) -> None:
    if done.error is not None:
        sent.fail(done.error)
    else:
        sent.complete(done.result())


def _less(placed: Iterable[Placed | None], sent: Mapping[Key, Placed]) -> Iterator[Placed | None]:
    """Leaves out what was sent as it is."""
    for one in placed:
        if one is None or (known := sent.get(one.key)) is None or known.image != one.image:
            yield one


def _both(first: Iterable[Placed | None], second: Iterable[Placed]) -> Iterator[Placed | None]:
    yield from first
    yield from second


def _slices(placed: Iterable[Placed | None]) -> Iterator[list[Placed] | None]:
    """Yields the partitions in slices, and ``None`` where they have one."""
    gathered: list[Placed] = []
    for one in placed:
        if one is None:
            yield None
            continue
        gathered.append(one)
        if len(gathered) == SLICE_PARTITIONS:
            yield gathered
            gathered = []
            yield None
    if gathered:
        yield gathered


def _failed_replicas(request: LeaderAndIsrRequest, answer: LeaderAndIsrResponse) -> list[TopicPartition]:
    """Returns the partitions whose replica is offline, by the broker's answer."""
    names = {topic.topic_id: topic.topic_name for topic in request.topic_states}
    failed = ErrorCode.KAFKA_STORAGE_ERROR
    by_id = [
        TopicPartition(names[topic.topic_id], error.partition_index)
        for topic in answer.topics
        if topic.topic_id in names
        for error in topic.partition_errors
        if error.error_code == failed
    ]
    by_name = [
        TopicPartition(error.topic_name, error.partition_index)
        for error in answer.partition_errors
        if error.error_code == failed
    ]
    return by_id + by_name
