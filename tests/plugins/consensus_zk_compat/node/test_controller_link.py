"""A node asks its controller again until there is an answer, or the time is over."""

from __future__ import annotations

import pytest

from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import OnBehalf
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.node.controller_link import RETRY_MS, ControllerLink
from blumfeld_kit.fakes.runtime import FakeRuntime

TIMEOUT_MS = 1_000.0
DONE = AllocateProducerIdsResponse(producer_id_start=7)
ELSEWHERE = AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER)


class Controllers:
    """Answers in their order; ``None``: no controller is known."""

    def __init__(self, *answers: Message | BaseException | None) -> None:
        self.runtime = FakeRuntime()
        self.answers = list(answers)
        self.asked: list[float] = []
        self.link = ControllerLink(self.runtime, self._ask)

    def _ask(
        self, _: Message, timeout_ms: float, wait_image: bool, on_behalf: OnBehalf | None
    ) -> Completion[Message] | None:
        assert wait_image
        assert on_behalf is None
        self.asked.append(timeout_ms)
        given = self.answers.pop(0)
        if given is None:
            return None
        answer: Completion[Message] = Completion()
        if isinstance(given, BaseException):
            answer.fail(given)
        else:
            answer.complete(given)
        return answer

    def ask(self) -> Completion[Message]:
        return self.link.ask(AllocateProducerIdsRequest(), TIMEOUT_MS, wait_image=True)


@pytest.mark.parametrize(
    "first",
    [None, OSError("refused"), TimeoutError("late"), ELSEWHERE, BrokerError(ErrorCode.NOT_CONTROLLER)],
)
def test_it_is_asked_again_until_the_controller_answers(first: Message | BaseException | None) -> None:
    controllers = Controllers(first, first, DONE)
    answer = controllers.ask()
    controllers.runtime.advance(2 * RETRY_MS)
    assert answer.result() is DONE
    assert controllers.asked == [TIMEOUT_MS, TIMEOUT_MS - RETRY_MS, TIMEOUT_MS - 2 * RETRY_MS]


def test_what_the_controller_refuses_is_not_asked_again() -> None:
    controllers = Controllers(BrokerError(ErrorCode.UNSUPPORTED_VERSION))
    answer = controllers.ask()
    assert isinstance(answer.error, BrokerError)
    controllers.runtime.advance(TIMEOUT_MS)
    assert len(controllers.asked) == 1


@pytest.mark.parametrize(
    ("stops", "code"), [(False, ErrorCode.REQUEST_TIMED_OUT), (True, ErrorCode.NOT_CONTROLLER)]
)
def test_an_end_comes_to_every_question(stops: bool, code: ErrorCode) -> None:
    controllers = Controllers(*[None] * 100)
    answer = controllers.ask()
    controllers.runtime.advance(RETRY_MS)
    if stops:
        controllers.link.stop()
    controllers.runtime.advance(TIMEOUT_MS)
    asked = len(controllers.asked)
    assert isinstance(answer.error, BrokerError)
    assert answer.error.code == code
    controllers.runtime.advance(TIMEOUT_MS)
    assert len(controllers.asked) == asked
