"""A controller registers its process with the active controller until the image shows it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from blumfeld.metadata.image.cluster_image import METADATA_VERSION_FEATURE, MetadataImage
from blumfeld.spi.cluster import ImageDelta
from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import ClusterMetadata
from blumfeld.spi.consensus import Controller as ControllerId
from blumfeld.spi.hooks import Composition
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.controller_registration import ControllerRegistrationResponse
from blumfeld.wire.messages.metadata_records import RegisterControllerRecord
from blumfeld.wire.schema import Message
from blumfeld_consensus_kraft.registration import RETRY_MAX_MS, ControllerRegistrar
from blumfeld_kit.fakes.runtime import FakeRuntime
from tests.plugins.consensus_kraft.kraft_node import Parts


class Metadata:
    """A consensus that keeps what it is asked."""

    def __init__(self) -> None:
        self.controller: ControllerId | None = ControllerId(2, 1)
        self.asked: list[tuple[Any, Completion[Message]]] = []

    def submit(self, command: Message, timeout_ms: float, **_: Any) -> Completion[Message]:
        """Kept, unanswered."""
        answer: Completion[Message] = Completion()
        self.asked.append((command, answer))
        return answer


class Registering:
    """Controller 1, and an image that the test changes."""

    def __init__(self, roles: tuple[str, ...] = ("controller",)) -> None:
        self.runtime = FakeRuntime(0)
        self.parts = Parts(self.runtime, {}, 1, "/data", ())
        self.parts.roles = roles  # type: ignore[assignment]
        self.metadata = Metadata()
        self.registrar = ControllerRegistrar(
            cast("Composition", self.parts),
            cast("ClusterMetadata", self.metadata),
            lambda: self.image,
            self.parts.events,
        )
        self.image = MetadataImage("cluster")
        self.image.features[METADATA_VERSION_FEATURE] = 30

    def step(self, incarnation_id: bytes | None = None) -> int:
        """The image moves on; how many registrations were asked for so far."""
        if incarnation_id is not None:
            record = RegisterControllerRecord(controller_id=1, incarnation_id=incarnation_id)
            self.image.controllers[1] = record
        self.registrar.image_changed(self.image, ImageDelta())
        return len(self.metadata.asked)

    def answer(self, error: Exception | None = None, code: int = 0) -> None:
        """To the last registration."""
        _, completion = self.metadata.asked[-1]
        if error is not None:
            completion.fail(error)
        else:
            completion.complete(ControllerRegistrationResponse(error_code=code))


@pytest.fixture
def registering() -> Registering:
    return Registering()


def test_it_asks_once_while_an_answer_is_missing_and_no_more_once_the_image_shows_it(
    registering: Registering,
) -> None:
    assert registering.step() == 1
    request = registering.metadata.asked[0][0]
    assert (request.controller_id, request.incarnation_id) == (1, registering.parts.incarnation_id)
    assert registering.step() == 1
    registering.answer()
    assert registering.step(registering.parts.incarnation_id) == 1
    assert registering.step(b"another process.") == 2


def test_an_attempt_that_failed_is_repeated_with_longer_and_longer_pauses(registering: Registering) -> None:
    registering.step()
    pauses = []
    for number in range(12):
        if number % 2:
            registering.answer(code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        else:
            registering.answer(BrokerError(ErrorCode.REQUEST_TIMED_OUT))
        attempts, began_ms = len(registering.metadata.asked), registering.runtime.monotonic_ms()
        assert registering.step() == attempts, "a step of the image doesn't cut the pause short"
        while len(registering.metadata.asked) == attempts:
            registering.runtime.advance(10)
            assert registering.runtime.monotonic_ms() - began_ms < 2 * RETRY_MAX_MS
        pauses.append(registering.runtime.monotonic_ms() - began_ms)
    assert pauses[:3] == sorted(pauses[:3])
    assert pauses[0] < 200
    assert RETRY_MAX_MS <= pauses[-1] < RETRY_MAX_MS * 1.1
    assert (
        "warning",
        "this controller could not register with the active one",
    ) in registering.parts.events.told


def test_a_registration_that_the_image_shows_meanwhile_is_not_repeated(registering: Registering) -> None:
    registering.step()
    registering.answer(BrokerError(ErrorCode.REQUEST_TIMED_OUT))
    registering.step(registering.parts.incarnation_id)
    registering.runtime.advance(60_000)
    assert len(registering.metadata.asked) == 1


def test_some_register_nobody() -> None:
    """The active controller, which writes its own; a broker; a log without metadata.version; a node that stops."""
    active = Registering()
    active.metadata.controller = ControllerId(1, 1)
    assert active.step() == 0
    assert Registering(("broker",)).step() == 0
    fresh = Registering()
    fresh.image.features.clear()
    assert fresh.step() == 0
    stopped = Registering()
    stopped.step()
    stopped.answer(BrokerError(ErrorCode.REQUEST_TIMED_OUT))
    stopped.registrar.stop()
    stopped.runtime.advance(60_000)
    assert stopped.step() == 1


def test_the_active_controller_registers_again_behind_another_process() -> None:
    """Somebody else's request had its id. An image that doesn't show its own record yet shows the process before it."""
    active = Registering()
    active.metadata.controller = ControllerId(1, 1)
    assert active.step(b"a process before") == 0
    assert active.step(active.parts.incarnation_id) == 0
    assert active.step(b"another process.") == 1


def test_one_that_led_registers_with_the_next_if_the_image_lacks_its_process(
    registering: Registering,
) -> None:
    """It led, and its own record wasn't committed."""
    registering.metadata.controller = ControllerId(1, 1)
    assert registering.step() == 0
    registering.metadata.controller = ControllerId(2, 2)
    assert registering.step() == 1
