"""A registration that is under way for long reaches the controller behind that of the next process (ADR 0019).

The lifecycles are the real ones, and so is the controller. Between them a network of the test delivers each request and
each answer when chance says so, also those of processes that were killed meanwhile, or are stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld.broker.membership.lifecycle import BrokerReplaced, Lifecycle
from blumfeld.config.values import BrokerConfig
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.spi.completion import Completion
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)
from blumfeld.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from blumfeld.wire.messages.broker_registration import BrokerRegistrationRequest
from blumfeld.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from blumfeld.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from blumfeld.wire.schema import Message
from blumfeld_kit.fakes.loop import SimulatedLoop
from blumfeld_kit.fakes.runtime import FakeRuntime
from tests.broker.harness import LISTENER, Quiet, noting
from tests.everyday import examples
from tests.metadata.driven import CLUSTER_ID, Driven, directory_id, replayed

NODE = 1
SESSION_MS = 9_000
CONFIG = BrokerConfig({"broker.session.timeout.ms": SESSION_MS})


class ProcessRuntime(FakeRuntime):
    """The runtime of a process that an error ends."""

    ended: Callable[[BaseException], None]

    def _note_defect(self, where: str, error: BaseException) -> None:
        self.ended(error)


class Process:
    """A process of the node. It starts, opens its replicas for a while, asks to be unfenced, and then serves.

    ``stopped`` is SIGSTOP as the controller sees it: nothing comes from the process, and it reads nothing.
    """

    def __init__(self, world: World, number: int, opening_ms: float) -> None:
        self.number = number
        self.stopped = False
        self.served = False
        self.failed: BaseException | None = None
        self.image_stands_at: int | None = None
        """Offset that its image doesn't come beyond."""
        self.image_behind: MetadataImage | None = None
        """What it reads instead of what the controller has decided since."""
        self.registrations_served: list[Message] = []
        """Registrations that it sent after it was unfenced."""
        self.runtime = ProcessRuntime(loop=world.loop)
        self.runtime.ended = self._end
        self.incarnation_id = b"process" + number.to_bytes(9)
        self._world = world
        composition = SimpleNamespace(
            runtime=self.runtime,
            config=CONFIG,
            node_id=NODE,
            cluster_id=CLUSTER_ID,
            incarnation_id=self.incarnation_id,
            listeners=(LISTENER,),
            features=(),
            rack=None,
            storage=SimpleNamespace(
                log_dirs=lambda: [SimpleNamespace(directory_id=directory_id(NODE), online=True)]
            ),
            metadata=self,
            log=lambda _: Quiet(),
        )
        self.lifecycle = Lifecycle(cast("Any", composition))
        self.runtime.spawn(self._live(opening_ms), f"process {number}")

    async def _live(self, opening_ms: float) -> None:
        await self.lifecycle.register()
        opened = Completion[None]()
        self.runtime.call_later(opening_ms, lambda: opened.complete(None))
        await opened
        await self.lifecycle.unfence()
        self.served = True

    def _end(self, error: BaseException) -> None:
        self.failed = error
        self.kill()

    @property
    def is_alive(self) -> bool:
        return not self.runtime.dead

    def kill(self) -> None:
        self.runtime.crash(power_cut=False)

    # ``ClusterMetadata``, as far as a lifecycle uses it

    @property
    def image(self) -> MetadataImage:
        if self.image_behind is not None:
            return self.image_behind
        return self._world.driven.image

    @property
    def applied_offset(self) -> int:
        return len(self._world.driven.log) - 1 if self.image_stands_at is None else self.image_stands_at

    def submit(self, command: Message, timeout_ms: float, **_: Any) -> Completion[Message]:
        if self.served and isinstance(command, BrokerRegistrationRequest):
            self.registrations_served.append(command)
        answer: Completion[Message] = Completion()
        self._world.under_way.append((self, lambda: self._world.decide(self, command, answer)))
        return answer

    def hear(self, answer: Completion[Message], response: Message) -> None:
        if self.is_alive and not answer.done:
            answer.complete(response)


class World:
    """The controller, the processes that there were, and what is under way between them."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop()
        self.driven = Driven({"broker.session.timeout.ms": SESSION_MS})
        self.processes: list[Process] = []
        self.under_way: list[tuple[Process, Callable[[], None]]] = []
        """Requests and answers, each with the process that it comes from or goes to."""

    def start(self, opening_ms: float = 100.0) -> Process:
        """Start the node's next process."""
        self.processes.append(Process(self, len(self.processes) + 1, opening_ms))
        self.loop.run_ready()
        return self.processes[-1]

    def decide(self, process: Process, command: Message, answer: Completion[Message]) -> None:
        """A request reaches the controller."""
        before = self.driven.image.brokers.get(NODE)
        live = before is not None and self.driven.controller.sessions.is_live(
            NODE, before.epoch, self.driven.now_ms
        )
        decision = self.driven.carry_out(self.driven.decide(command))
        self.driven.controller.answered(command, decision.response, self.driven.now_ms)
        after = self.driven.image.brokers.get(NODE)
        if before is not None and after is not None and before.incarnation_id != after.incarnation_id:
            assert not live, "a process that the controller hears from has lost its id"
        response = decision.response
        self.under_way.append((process, lambda: process.hear(answer, response)))
        if before != after:
            self.show()

    def show(self) -> None:
        """What the controller has decided is on its way to every process."""
        for process in self.processes:
            self.under_way.append((process, partial(self._show, process)))

    def _show(self, process: Process) -> None:
        if process.is_alive and process.image_stands_at is None:
            process.lifecycle.image_changed(self.driven.image, (NODE,))

    def deliver(self, nth: int) -> None:
        """Deliver one of the things that are under way; a stopped process sends and reads nothing."""
        ready = [at for at, (process, _) in enumerate(self.under_way) if not process.stopped]
        if ready:
            _, arrive = self.under_way.pop(ready[nth % len(ready)])
            arrive()
            self.loop.run_ready()

    def deliver_until(self, done: Callable[[], bool]) -> None:
        while not done():
            self.deliver(0)

    def deliver_all(self) -> None:
        while any(not process.stopped for process, _ in self.under_way):
            self.deliver(0)

    def wait(self, ms: float) -> None:
        """Let time pass, and deliver nothing."""
        self.loop.advance(ms)
        self.driven.now_ms = self.loop.time() * 1_000

    def calm(self, ms: float) -> None:
        """Let time pass, and deliver everything at once. The controller fences what falls silent."""
        until_ms = self.loop.time() * 1_000 + ms
        while self.loop.time() * 1_000 < until_ms:
            self.deliver_all()
            self.wait(50.0)
            self.expire()

    def expire(self) -> None:
        while (fenced := self.driven.controller.fence_expired(self.driven.now_ms)) is not None:
            self.driven.place(fenced[1])

    def let_session_end(self) -> None:
        self.wait(SESSION_MS + 1.0)
        self.expire()

    def new_controller(self) -> None:
        """Another controller takes over: sessions are lost."""
        for broker_id in list(self.driven.image.brokers):
            self.driven.controller.sessions.gone(broker_id)
        self.driven.controller.take_over(self.driven.now_ms, None)

    def holder(self) -> Process | None:
        """The process that is registered and unfenced, and knows it."""
        broker = self.driven.image.brokers.get(NODE)
        for process in self.processes:
            own = broker is not None and broker.incarnation_id == process.incarnation_id
            if own and broker is not None and process.is_alive and not broker.fenced:
                assert process.lifecycle.broker_epoch == broker.epoch
                return process if process.served else None
        return None


def late_registration() -> tuple[World, Process]:
    """A killed process's registration arrives behind that of the next process, which opens its replicas (seed 9416)."""
    world = World()
    killed = world.start()
    killed.kill()
    starting = world.start(opening_ms=1_000.0)
    world.deliver(1)
    assert world.driven.image.brokers[NODE].incarnation_id == starting.incarnation_id
    late, world.under_way[:] = world.under_way[0], world.under_way[1:]
    world.deliver_all()
    late[1]()
    assert world.driven.image.brokers[NODE].incarnation_id == killed.incarnation_id
    return world, starting


def test_a_start_whose_place_a_late_registration_took_comes_to_serve() -> None:
    world, starting = late_registration()
    world.calm(1_500.0)
    assert starting.served
    assert world.holder() is starting


def test_without_a_word_from_the_image_the_next_heartbeat_tells() -> None:
    world, starting = late_registration()
    world.under_way.clear()
    world.calm(3_000.0)
    assert world.holder() is starting


def test_it_is_unfenced_when_its_image_shows_the_second_registration() -> None:
    world, starting = late_registration()
    starting.image_stands_at = starting.lifecycle.broker_epoch
    world.calm(3_000.0)
    assert world.driven.image.brokers[NODE].incarnation_id == starting.incarnation_id
    assert world.driven.image.brokers[NODE].fenced
    assert not starting.served
    starting.image_stands_at = None
    world.calm(500.0)
    assert world.holder() is starting


def test_the_second_registration_is_safe_from_another_late_one() -> None:
    """A heartbeat follows it at once, and begins a session."""
    world, _ = late_registration()
    world.deliver_all()
    late = world.driven.registration(NODE, incarnation=99)
    assert world.driven.decide(late).response.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION  # type: ignore[attr-defined]


def test_of_two_processes_that_start_one_gets_the_id() -> None:
    """Neither was killed: somebody has started the same node twice. The other one gives up, and says why."""
    world = World()
    both = [world.start(), world.start()]
    world.calm(61_000.0)
    holder = world.holder()
    (other,) = [process for process in both if process is not holder]
    assert holder in both
    assert isinstance(other.failed, (BrokerError, BrokerReplaced))


@pytest.mark.parametrize("served", [False, True])
def test_a_stopped_process_does_not_take_the_id_back(served: bool) -> None:
    """Its successor serves. The process goes on after that, and ends."""
    world = World()
    zombie, successor = replaced(world, served)
    zombie.stopped = False
    world.calm(500.0)
    assert world.holder() is successor
    world.calm(61_000.0)
    assert isinstance(zombie.failed, BrokerReplaced if served else (BrokerReplaced, BrokerError))
    assert world.holder() is successor


def test_a_process_that_served_does_not_take_the_id_from_a_successor_that_is_silent() -> None:
    """The controller would let it: the successor's session is over, too."""
    world = World()
    zombie, successor = replaced(world, served=True)
    successor.stopped = True
    world.let_session_end()
    zombie.stopped = False
    world.calm(500.0)
    successor.stopped = False
    world.calm(3_000.0)
    assert isinstance(zombie.failed, BrokerReplaced)
    assert world.holder() is successor


def strangers_registration(world: World, *directories: bytes) -> None:
    """One frame, which no heartbeat follows: of a process that never was."""
    world.driven.do(UnregisterBrokerRequest(broker_id=NODE), UnregisterBrokerResponse)
    world.driven.register(NODE, incarnation=99, log_dirs=directories)
    world.show()


def with_a_replica(*topics: str) -> tuple[World, Process]:
    """A process that serves, and whose directory has a replica of each topic."""
    world = World()
    process = world.start()
    world.calm(500.0)
    for topic in topics or ("letters",):
        world.driven.create(topic)
    assert world.driven.partition("letters").directories == (directory_id(NODE),)
    return world, process


@pytest.mark.parametrize("directories", [(), (directory_id(NODE, 1),)], ids=["its directory", "another"])
def test_a_strangers_registration_ends_no_process_whose_directory_has_replicas(
    directories: tuple[bytes, ...],
) -> None:
    """UnregisterBroker, and a registration of the id that nobody stands behind. The process proves by the image that no
    other one has taken over its replicas, and registers again.
    """
    world, process = with_a_replica()
    strangers_registration(world, *directories)
    world.calm(500.0)
    assert process.failed is None
    assert world.holder() is process
    assert len(process.registrations_served) == 1
    assert world.driven.partition("letters").leader == NODE


@pytest.mark.parametrize("has_replicas", [True, False])
def test_a_process_whose_second_registration_is_not_answered_asks_again(has_replicas: bool) -> None:
    """The image shows its own registration, in an epoch that it never heard of."""
    world, process = with_a_replica()
    if not has_replicas:
        world.driven.do(DeleteTopicsRequest(topics=[DeleteTopicState(name="letters")]), DeleteTopicsResponse)
    process.lifecycle.broker_epoch -= 1
    world.calm(4_000.0)
    assert process.failed is None
    assert world.holder() is process


def test_a_process_that_leaves_while_another_one_has_its_id_stops_without_an_error() -> None:
    world, process = with_a_replica()
    strangers_registration(world)
    world.wait(2_000.0)
    world.deliver_until(lambda: bool(process.registrations_served))
    process.runtime.spawn(process.lifecycle.shut_down(), "stop")
    world.driven.beat(NODE, world.driven.image.brokers[NODE].epoch, want_fence=True)
    world.calm(SESSION_MS + 1.0)
    assert process.failed is None


def test_a_process_whose_image_lags_does_not_take_the_id_back() -> None:
    """It may have been stopped for long: what it reads may show that its successor has taken over the replicas."""
    world, process = with_a_replica()
    process.image_stands_at, process.image_behind = len(world.driven.log) - 1, replayed(world.driven.log)
    strangers_registration(world)
    world.calm(4_000.0)
    assert process.failed is None
    assert process.registrations_served == []
    process.image_stands_at = process.image_behind = None
    world.calm(500.0)
    assert world.holder() is process


def test_a_process_whose_id_another_one_holds_ends_although_its_directory_has_replicas() -> None:
    """The controller hears from the other one, so this one is refused."""
    world, process = with_a_replica()
    process.stopped = True
    world.let_session_end()
    epoch = world.driven.register(NODE, incarnation=99)
    world.driven.beat(NODE, epoch, want_fence=True)
    process.stopped = False
    world.show()
    world.calm(500.0)
    assert isinstance(process.failed, BrokerReplaced)


@pytest.mark.parametrize("topics", [("letters",), ("drafts", "letters")])
def test_a_process_one_of_whose_replicas_lies_in_anothers_directory_ends(topics: tuple[str, ...]) -> None:
    """Its successor on another disk has begun to take them over, and is silent now."""
    world, process = with_a_replica(*topics)
    process.stopped = True
    world.let_session_end()
    other = directory_id(NODE, 1)
    epoch = world.driven.register(NODE, incarnation=99, log_dirs=[other])
    world.driven.beat(NODE, epoch, want_fence=True)
    topic = world.driven.image.topics["letters"]
    lies = RequestTopicData(topic_id=topic.topic_id, partitions=[RequestPartitionData(partition_index=0)])
    request = AssignReplicasToDirsRequest(
        broker_id=NODE, broker_epoch=epoch, directories=[RequestDirectoryData(id=other, topics=[lies])]
    )
    world.driven.do(request, AssignReplicasToDirsResponse)
    world.wait(SESSION_MS + 1.0)
    process.stopped = False
    world.show()
    world.calm(500.0)
    assert isinstance(process.failed, BrokerReplaced)
    assert process.registrations_served == []


def replaced(world: World, served: bool) -> tuple[Process, Process]:
    """A process is stopped while it starts or serves, and its successor serves."""
    zombie = world.start(opening_ms=100.0 if served else 1_000.0)
    world.calm(500.0)
    assert zombie.served is served
    zombie.stopped = True
    world.let_session_end()
    successor = world.start()
    world.calm(1_000.0)
    assert world.holder() is successor
    return zombie, successor


ACTIONS = ("deliver",) * 6 + ("wait",) * 3 + ("start", "kill", "stop", "go on", "controller")


@given(st.integers(0, 2**32))
@settings(max_examples=examples(60), deadline=None)
def test_in_the_end_the_process_that_lives_serves(seed: int) -> None:
    """Whatever arrives, and when. A process that ended by itself is started again, as its supervisor would do."""
    chance, world = Random(seed), World()
    for _ in range(chance.randrange(10, 120)):
        living = [process for process in world.processes if process.is_alive]
        match chance.choice(ACTIONS):
            case "start" if all(process.stopped for process in living):
                world.start(chance.random() * 3_000)
            case "kill" if living:
                chance.choice(living).kill()
            case "stop" if living:
                chance.choice(living).stopped = True
            case "go on" if living:
                chance.choice(living).stopped = False
            case "controller":
                world.new_controller()
            case "deliver":
                world.deliver(chance.randrange(1_000))
            case "wait":
                world.wait(chance.random() ** 3 * 2 * SESSION_MS)
                world.expire()
    living = [process for process in world.processes if process.is_alive]
    for process in living[:-1]:
        process.kill()
    for process in world.processes:
        process.stopped = False
    for _ in range(3):
        if not any(process.is_alive for process in world.processes):
            world.start()
        world.calm(2 * SESSION_MS)
    assert world.holder() is not None
    assert not any(process.registrations_served for process in world.processes)
    failed = [process.failed for process in world.processes if process.failed is not None]
    assert all(isinstance(error, (BrokerReplaced, BrokerError, TimeoutError)) for error in failed)


def test_a_heartbeat_is_what_the_lifecycle_sends_first_behind_its_second_registration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, starting = late_registration()
    sent = noting(monkeypatch, starting, "submit", lambda command, *_: command)
    world.deliver_all()
    again = [type(command) for command in sent].index(BrokerRegistrationRequest)
    beat = sent[again + 1]
    assert isinstance(beat, BrokerHeartbeatRequest)
    assert beat.broker_epoch == starting.lifecycle.broker_epoch
    assert beat.want_fence
