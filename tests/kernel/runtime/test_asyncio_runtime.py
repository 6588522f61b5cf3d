"""The end of a turn, tasks and off-loop work on a real asyncio loop."""

from __future__ import annotations

import asyncio
import base64
import random
import threading
import weakref
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from blumfeld.kernel.runtime.asyncio_runtime import AsyncioRuntime, legal_uuid
from blumfeld.spi.runtime import TURN_ROUNDS_MAX, Phase, Runtime


class Defects:
    """What the runtime reported."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def __call__(self, where: str, error: BaseException) -> None:
        self.seen.append((where, str(error)))


def run(body: Callable[[AsyncioRuntime], Coroutine[Any, Any, None]]) -> Defects:
    """Run ``body(runtime)`` in a loop of its own; what was reported as a defect."""
    defects = Defects()

    async def main() -> None:
        runtime = AsyncioRuntime(defects)
        as_runtime: Runtime = runtime
        assert as_runtime.monotonic_ms() > 0
        await body(runtime)
        await runtime.close()

    asyncio.run(main())
    return defects


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def ends_of_turns(
    place: Callable[[AsyncioRuntime, Callable[[str], None]], None], *defects: tuple[str, str]
) -> list[str]:
    """What the callbacks wrote down that ``place(runtime, write_down)`` places in a turn."""
    seen: list[str] = []

    async def body(runtime: AsyncioRuntime) -> None:
        place(runtime, seen.append)
        assert seen == []
        await turns(5)

    assert run(body).seen == list(defects)
    return seen


def test_phases_run_in_their_order_and_in_order_of_registration() -> None:
    def place(runtime: AsyncioRuntime, write_down: Callable[[str], None]) -> None:
        for phase in (Phase.ANSWER, Phase.COMPLETE, Phase.WRITE, Phase.HIGH_WATERMARK):
            for nth in (1, 2):
                runtime.at_end_of_turn(phase, partial(write_down, f"{phase.name}{nth}"))

    phases = ("WRITE", "HIGH_WATERMARK", "COMPLETE", "ANSWER")
    assert ends_of_turns(place) == [f"{phase}{nth}" for phase in phases for nth in (1, 2)]


def test_what_was_ready_in_this_turn_comes_before_its_end() -> None:
    """All readers of one poll come first: so that they share one write."""

    def place(runtime: AsyncioRuntime, write_down: Callable[[str], None]) -> None:
        def reader(name: str) -> None:
            write_down(name)
            runtime.at_end_of_turn(Phase.WRITE, lambda: write_down(f"write {name}"))

        loop = asyncio.get_running_loop()
        loop.call_soon(reader, "a")
        loop.call_soon(reader, "b")

    assert ends_of_turns(place) == ["a", "b", "write a", "write b"]


def test_placing_again_makes_another_round_before_the_answers() -> None:
    def place(runtime: AsyncioRuntime, write_down: Callable[[str], None]) -> None:
        def complete() -> None:
            write_down("complete")
            runtime.at_end_of_turn(Phase.WRITE, lambda: write_down("write again"))

        runtime.at_end_of_turn(Phase.ANSWER, lambda: write_down("answer"))
        runtime.at_end_of_turn(Phase.COMPLETE, complete)
        runtime.at_end_of_turn(Phase.WRITE, lambda: write_down("write"))

    assert ends_of_turns(place) == ["write", "complete", "write again", "answer"]


def test_rounds_are_bounded_and_the_rest_has_a_turn_after_the_answers() -> None:
    def place(runtime: AsyncioRuntime, write_down: Callable[[str], None]) -> None:
        def complete(left: int) -> None:
            write_down("complete")
            if left:
                runtime.at_end_of_turn(Phase.COMPLETE, lambda: complete(left - 1))

        runtime.at_end_of_turn(Phase.COMPLETE, lambda: complete(TURN_ROUNDS_MAX + 1))
        runtime.at_end_of_turn(Phase.ANSWER, lambda: write_down("answer"))

    assert ends_of_turns(place) == ["complete"] * TURN_ROUNDS_MAX + ["answer"] + ["complete"] * 2


def test_what_an_answer_registers_belongs_to_the_next_turn() -> None:
    def place(runtime: AsyncioRuntime, write_down: Callable[[str], None]) -> None:
        def answer() -> None:
            write_down("answer")
            runtime.at_end_of_turn(Phase.WRITE, lambda: write_down("write"))
            asyncio.get_running_loop().call_soon(write_down, "between")

        runtime.at_end_of_turn(Phase.ANSWER, answer)

    assert ends_of_turns(place) == ["answer", "between", "write"]


def test_a_failing_callback_is_a_defect_and_the_others_still_run() -> None:
    def place(runtime: AsyncioRuntime, write_down: Callable[[str], None]) -> None:
        def fail() -> None:
            raise ValueError("bad write")

        runtime.at_end_of_turn(Phase.WRITE, fail)
        runtime.at_end_of_turn(Phase.WRITE, lambda: write_down("write"))
        runtime.at_end_of_turn(Phase.ANSWER, lambda: write_down("answer"))

    assert ends_of_turns(place, ("end of turn, WRITE", "bad write")) == ["write", "answer"]


def test_what_escapes_from_a_task_is_a_defect_and_cancelling_is_not() -> None:
    async def body(runtime: AsyncioRuntime) -> None:
        async def fail() -> None:
            raise ValueError("oh")

        async def wait() -> None:
            await asyncio.sleep(60)

        runtime.spawn(fail(), "failing")
        task = runtime.spawn(wait(), "waiting")
        await turns()
        assert task.cancel()
        await turns()
        assert task.done()

    assert run(body).seen == [("task failing", "oh")]


def test_close_ends_tasks_and_waits_for_offloaded_work() -> None:
    ended: list[str] = []

    async def body(runtime: AsyncioRuntime) -> None:
        async def wait() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                ended.append("task")

        def slow() -> None:
            begun.set()
            release.wait(10)
            ended.append("work")

        begun, release = threading.Event(), threading.Event()
        runtime.spawn(wait(), "waiting")
        future = runtime.offload(slow)
        await turns()
        assert begun.wait(10)
        release.set()
        await runtime.close()
        assert sorted(ended) == ["task", "work"]
        await future

    assert run(body).seen == []


class Large:
    """Stands for the buffer of an unpacked batch."""


def test_the_error_of_offloaded_work_keeps_none_of_its_memory() -> None:
    """Each of a client's bombs left 100 MB behind, until garbage was collected. The lines of the traceback stay."""
    used: list[weakref.ref[Large]] = []

    def unpack(large: Large) -> None:
        used.append(weakref.ref(large))
        raise KeyError("too large")

    def work(given: Large) -> None:
        used.append(weakref.ref(given))
        buffer = Large()
        used.append(weakref.ref(buffer))
        try:
            unpack(Large())
        except KeyError:
            raise ValueError("a bomb") from None

    async def body(runtime: AsyncioRuntime) -> None:
        with pytest.raises(ValueError, match="a bomb") as raised:
            await runtime.offload(work, Large())
        assert [call() for call in used] == [None, None, None]
        assert raised.traceback[-1].name == "work"

    assert run(body).seen == []


def test_offload_runs_elsewhere_and_brings_back_value_and_error() -> None:
    async def body(runtime: AsyncioRuntime) -> None:
        def work(divisor: int) -> tuple[float, bool]:
            return 1 / divisor, threading.current_thread() is threading.main_thread()

        assert await runtime.offload(work, 2) == (0.5, False)
        with pytest.raises(ZeroDivisionError):
            await runtime.offload(work, 0)

    run(body)


def test_in_thread_calls_back_on_the_loop() -> None:
    async def body(runtime: AsyncioRuntime) -> None:
        arrived: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        ours = threading.get_ident()
        await runtime.offload(runtime.in_thread, lambda: arrived.set_result(threading.get_ident() == ours))
        assert await arrived

    run(body)


def test_in_thread_after_the_end_is_ignored() -> None:
    kept: list[AsyncioRuntime] = []

    async def body(runtime: AsyncioRuntime) -> None:
        kept.append(runtime)

    run(body)
    kept[0].in_thread(lambda: None)


def test_timers_fire_in_order_and_can_be_cancelled() -> None:
    seen: list[str] = []

    async def body(runtime: AsyncioRuntime) -> None:
        runtime.call_later(20, lambda: seen.append("later"))
        runtime.call_later(0, lambda: seen.append("next turn"))
        cancelled = runtime.call_later(5, lambda: seen.append("never"))
        cancelled.cancel()
        cancelled.cancel()
        await asyncio.sleep(0.06)

    run(body)
    assert seen == ["next turn", "later"]


class Scripted(random.Random):
    """A source that gives these bytes first."""

    def __init__(self, *values: bytes) -> None:
        super().__init__(1)
        self.values = list(values)

    def randbytes(self, n: int) -> bytes:
        return self.values.pop(0) if self.values else super().randbytes(n)


@pytest.mark.parametrize(
    "illegal",
    [
        pytest.param(bytes(16), id="the zero id"),
        pytest.param(bytes(15) + b"\x63", id="reserved"),
        pytest.param(b"\xf8" + bytes(15), id="text that begins with a dash"),
    ],
)
def test_an_illegal_uuid_is_drawn_again(illegal: bytes) -> None:
    drawn = legal_uuid(Scripted(illegal))
    assert drawn != illegal
    assert not base64.urlsafe_b64encode(drawn).startswith(b"-")


def test_the_first_unreserved_uuid_is_legal() -> None:
    assert legal_uuid(Scripted(bytes(15) + b"\x64")) == bytes(15) + b"\x64"
