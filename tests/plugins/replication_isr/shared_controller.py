"""A consensus for tests: one controller in memory that the nodes of a simulation share. It never fails; its links may.

The controller is the product's own (:class:`blumfeld.metadata.controller.Controller`). Only its log is a list, and the
way to it is a delay on virtual time. It is no part of the product.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any, NamedTuple, cast

from blumfeld.config.values import BrokerConfig
from blumfeld.metadata.brokers.feature_levels import default_levels, supported_features
from blumfeld.metadata.controller import Controller
from blumfeld.metadata.decision import Moment
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.records import feature_records
from blumfeld.metadata.image.step import ImageStep
from blumfeld.plugging.registry import GROUP
from blumfeld.spi.cluster import ClusterImage, ImageDelta
from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import Controller as ControllerId
from blumfeld.spi.consensus import ImageListener, OnBehalf, Quorum, ReplicaDriver
from blumfeld.spi.hooks import Composition, NoOptions, hookimpl
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.schema import Message
from blumfeld_kit.fakes.loop import SimulatedLoop
from blumfeld_kit.fakes.runtime import FakeRuntime

EPOCH = 1
DELAY_S = 0.002
"""Time of a message from or to the controller."""
SESSIONS_S = 0.25
CLUSTER_ID = "bGVhZGVyc2FuZGZvbGxvdw"


class Step(NamedTuple):
    """Records of one decision."""

    records: list[Message]
    base_offset: int

    @property
    def end_offset(self) -> int:
        return self.base_offset + len(self.records)


class SharedController:
    """The controller, its log, and the nodes that read it."""

    def __init__(self, loop: SimulatedLoop, config: dict[str, Any]) -> None:
        self.loop = loop
        self.log: list[Step] = []
        self.unreachable: set[int] = set()
        """Nodes whose messages to and from the controller get lost."""
        self.commands: list[Message] = []
        """Everything that was decided on."""
        self._readers: dict[int, SharedMetadata] = {}
        self._config = BrokerConfig(config)
        image = MetadataImage(CLUSTER_ID)
        self._controller = Controller(image, self._config)
        levels = default_levels(supported_features(()))
        self._append(feature_records(levels))
        self._random = 0
        loop.call_later(SESSIONS_S, self._expire)

    @property
    def image(self) -> MetadataImage:
        return self._controller.image

    def plugin(self) -> EntryPoint:
        """The consensus plug-in of the nodes."""
        shared = self

        class Plugin:
            options_class = NoOptions
            roles = ("consensus",)

            @hookimpl
            def blumfeld_make_consensus(self, composition: Composition) -> SharedMetadata:
                return SharedMetadata(composition, shared)

        class Point(EntryPoint):
            def load(self) -> Any:
                return Plugin

        return Point("consensus_shared", "tests:Plugin", GROUP)

    def joins(self, node_id: int, reader: SharedMetadata) -> None:
        self._readers[node_id] = reader
        self._tell(node_id, reader)

    def leaves(self, node_id: int, reader: SharedMetadata) -> None:
        if self._readers.get(node_id) is reader:
            del self._readers[node_id]

    def later(self, node_id: int, callback: Callable[..., None], *arguments: Any) -> None:
        """Deliver something to or from a node, unless its link is cut."""

        def arrive() -> None:
            if node_id not in self.unreachable:
                callback(*arguments)

        self.loop.call_later(DELAY_S, arrive)

    def decide(
        self, node_id: int, command: Message, answer: Callable[[Message | ErrorCode, int], None]
    ) -> None:
        """Decide, and answer the node with the response and the log's end."""
        self.commands.append(command)
        try:
            decision = self._controller.command(command, self._moment())
            self._append(decision.records)
            while decision.rest is not None:
                decision = decision.rest(self._controller.state, self._moment())
                self._append(decision.records)
        except BrokerError as error:
            self.later(node_id, answer, error.code, -1)
            return
        self._controller.answered(command, decision.response, self.loop.time() * 1000)
        self.later(node_id, answer, decision.response, self._end)

    @property
    def _end(self) -> int:
        return self.log[-1].end_offset if self.log else 0

    def _moment(self) -> Moment:
        return Moment(
            now_ms=self.loop.time() * 1000,
            wall_ms=0,
            next_offset=self._end,
            new_uuid=self._new_uuid,
            new_secret=bytes,
        )

    def _new_uuid(self) -> bytes:
        self._random += 1
        return b"shared-uuid-" + self._random.to_bytes(4)

    def _append(self, records: list[Message]) -> None:
        if not records:
            return
        step = Step(records, self._end)
        self._controller.replay(records, step.base_offset, EPOCH)
        self.log.append(step)
        for node_id, reader in self._readers.items():
            self._tell(node_id, reader)

    def _tell(self, node_id: int, reader: SharedMetadata) -> None:
        self.later(node_id, reader.news)

    def _expire(self) -> None:
        self.loop.call_later(SESSIONS_S, self._expire)
        while (fenced := self._controller.fence_expired(self.loop.time() * 1000)) is not None:
            self._append(fenced[1])
        for node_id, reader in self._readers.items():  # what a cut link has lost comes again
            self._tell(node_id, reader)


class SharedMetadata:
    """``ClusterMetadata`` of one node."""

    replica_driver = ReplicaDriver.IMAGE
    forwards = True

    def __init__(self, composition: Composition, shared: SharedController) -> None:
        self._shared = shared
        self._node_id = composition.node_id
        self._runtime = cast("FakeRuntime", composition.runtime)
        self._image = MetadataImage(CLUSTER_ID)
        self._applied = 0
        """Steps of the shared log that the image has."""
        self._listeners: list[ImageListener] = []
        self._busy = False
        self._loaded = False
        self._waiting: deque[tuple[int, Completion[Message], Message]] = deque()

    @property
    def image(self) -> ClusterImage:
        return self._image

    @property
    def controller_image(self) -> ClusterImage:
        return self._image

    @property
    def controller(self) -> ControllerId | None:
        return ControllerId(9000, EPOCH)

    def quorum(self) -> Quorum | None:
        return None

    @property
    def applied_offset(self) -> int:
        return self._image.offset

    async def start(self) -> None:
        for step in self._shared.log:
            self._replay(step)
        self._loaded = True
        self._tell(self._listeners, self._image.first_delta())
        self._shared.joins(self._node_id, self)

    async def caught_up(self) -> None:
        return None

    def news(self) -> None:
        """The log has grown. Called outside of the node."""
        cast("Any", self._runtime.loop).deliver(self._go_on)

    def submit(
        self,
        command: Message,
        timeout_ms: float,
        *,
        on_behalf: OnBehalf | None = None,
        wait_image: bool = True,
    ) -> Completion[Message]:
        done: Completion[Message] = Completion()
        loop = cast("Any", self._runtime.loop)

        def expire() -> None:
            if not done.done:
                done.fail(BrokerError(ErrorCode.REQUEST_TIMED_OUT))

        def take(response: Message | ErrorCode, end_offset: int) -> None:
            if done.done:
                return
            if isinstance(response, ErrorCode):
                done.fail(BrokerError(response))
            elif wait_image and self._image.offset < end_offset - 1:
                self._waiting.append((end_offset, done, response))
            else:
                done.complete(response)

        def answer(response: Message | ErrorCode, end_offset: int) -> None:
            loop.deliver(take, response, end_offset)

        self._runtime.call_later(timeout_ms, expire)
        self._shared.later(self._node_id, self._shared.decide, self._node_id, command, answer)
        return done

    def subscribe(self, listener: ImageListener) -> None:
        self._listeners.append(listener)
        if self._loaded:
            self._tell([listener], self._image.first_delta())

    async def resign(self) -> None:
        return None

    async def stop(self) -> None:
        self._shared.leaves(self._node_id, self)

    def _replay(self, step: Step) -> ImageDelta:
        replaying = ImageStep(self._image)
        for record in step.records:
            replaying.replay(record)
        self._applied += 1
        return replaying.finish(step.end_offset - 1, EPOCH)

    def _go_on(self) -> None:
        if self._busy:
            return
        while self._applied < len(self._shared.log) and not self._busy:
            self._tell(self._listeners, self._replay(self._shared.log[self._applied]))
        if not self._busy:
            self._answer()

    def _answer(self) -> None:
        while self._waiting and self._waiting[0][0] - 1 <= self._image.offset:
            _, done, response = self._waiting.popleft()
            if not done.done:
                done.complete(response)

    def _tell(self, listeners: list[ImageListener], delta: ImageDelta) -> None:
        for listener in listeners:
            applying = listener(self._image, delta)
            if applying is not None and not applying.done:
                assert not self._busy, "one listener at a time is enough here"
                self._busy = True
                applying.when_done(self._was_applied)

    def _was_applied(self, _: Completion[None]) -> None:
        self._busy = False
        self._go_on()
