"""Virtual time: turns, timers, tasks, off-loop work, and what a crash leaves of a node."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

import pytest

from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Files, Phase, Runtime
from blumfeld_kit.fakes.loop import SimulatedLoop, SimulationError
from blumfeld_kit.fakes.runtime import EPOCH_MS, FakeRuntime


@pytest.fixture
def runtime() -> FakeRuntime:
    return FakeRuntime(7)


def test_it_is_what_the_runtime_promises(runtime: FakeRuntime) -> None:
    as_runtime: Runtime = runtime
    assert as_runtime.now_ms() == EPOCH_MS
    assert as_runtime.monotonic_ms() == 0.0


def test_timers_fire_in_order_of_their_time(runtime: FakeRuntime) -> None:
    seen: list[tuple[str, float]] = []
    for name, delay_ms in (("c", 30), ("a", 10), ("b", 20), ("late", 31)):
        runtime.call_later(delay_ms, lambda name=name: seen.append((name, runtime.monotonic_ms())))  # type: ignore[misc]
    runtime.call_later(15, lambda: seen.append(("gone", 0))).cancel()
    runtime.advance(30)
    assert [(name, round(ms, 6)) for name, ms in seen] == [("a", 10), ("b", 20), ("c", 30)]
    assert runtime.now_ms() == EPOCH_MS + 30
    runtime.advance(1)
    assert seen[-1][0] == "late"


def test_the_end_of_a_turn_comes_before_time_passes(runtime: FakeRuntime) -> None:
    seen: list[str] = []

    def placed() -> None:
        runtime.at_end_of_turn(Phase.ANSWER, lambda: seen.append("answer"))
        runtime.at_end_of_turn(Phase.WRITE, lambda: seen.append("write"))

    runtime.call_later(5, placed)
    runtime.call_later(5.5, lambda: seen.append("later"))
    runtime.advance(10)
    assert seen == ["write", "answer", "later"]


def test_plain_await_works_and_takes_no_real_time(runtime: FakeRuntime) -> None:
    answer: Completion[int] = Completion()

    async def body() -> tuple[int, int]:
        await asyncio.sleep(3600)
        runtime.call_later(1000, lambda: answer.complete(4))
        return await answer, await runtime.offload(lambda: 5)

    assert runtime.run(body()) == (4, 5)
    assert runtime.monotonic_ms() == pytest.approx(3_601_000)


def test_offloaded_work_is_done_in_a_later_turn_or_after_the_delay_asked_for(runtime: FakeRuntime) -> None:
    runtime.offload_delay_ms = lambda: 50.0

    async def body() -> str:
        result = runtime.offload(lambda: "done")
        await asyncio.sleep(0.049)
        assert not asyncio.isfuture(result) or not result.done()
        return await result

    assert runtime.run(body()) == "done"


def count_steps(files: Files, path: str, steps: int, pause_seconds: float) -> Generator[float, float, float]:
    """A file that grows by a byte with each step; the time that the steps took."""
    began = now = yield 0.0
    file = files.open(path, create=True)
    for step in range(steps):
        file.pwritev([b"x"], step)
        now = yield pause_seconds
    return now - began


def size(runtime: FakeRuntime, path: str) -> int:
    files = runtime.files
    return len(files.read_bytes(path)) if files.exists(path) else -1


def test_work_for_a_process_goes_step_by_step_on_the_nodes_files(runtime: FakeRuntime) -> None:
    """One piece after the other, each with its pauses, while the loop does other things."""

    async def both() -> list[float]:
        first = asyncio.ensure_future(runtime.offload_process(count_steps, "/a", 3, 2.0))
        second = asyncio.ensure_future(runtime.offload_process(count_steps, "/b", 1, 0.0))
        await asyncio.sleep(3)
        assert (size(runtime, "/a"), size(runtime, "/b")) == (2, -1)
        return [await first, await second]

    assert runtime.run(both()) == [6.0, 0.0]


def test_cancelled_work_is_ended_where_it_is(runtime: FakeRuntime) -> None:
    async def cancel() -> None:
        work = asyncio.ensure_future(runtime.offload_process(count_steps, "/a", 10, 1.0))
        await asyncio.sleep(3.5)
        work.cancel()
        assert await runtime.offload_process(count_steps, "/b", 0, 0.0) == 0.0
        await asyncio.sleep(10)

    runtime.run(cancel())
    assert size(runtime, "/a") == 4


def test_work_for_a_process_dies_with_its_node(runtime: FakeRuntime) -> None:
    work = asyncio.ensure_future(runtime.offload_process(count_steps, "/a", 10, 1.0), loop=runtime.loop)
    runtime.advance(2500)
    runtime.crash(power_cut=False)
    again = FakeRuntime(2, loop=runtime.loop, disk=runtime.disk)
    again.advance(60_000)
    assert size(again, "/a") == 3
    assert work.done()


def test_waiting_for_nothing_is_an_error_and_not_a_hang(runtime: FakeRuntime) -> None:
    async def body() -> None:
        await Completion()

    with pytest.raises(SimulationError, match="nothing can happen"):
        runtime.run(body())


def test_what_escapes_from_a_task_or_callback_is_raised_to_the_test(runtime: FakeRuntime) -> None:
    async def body() -> None:
        raise ValueError("boom")

    runtime.spawn(body(), "boomer")
    with pytest.raises(SimulationError, match="task boomer"):
        runtime.run_turn()
    assert [where for where, _ in runtime.defects] == ["task boomer"]


def test_nothing_of_a_crashed_node_runs_any_more() -> None:
    loop = SimulatedLoop()
    node, other = FakeRuntime(1, loop=loop), FakeRuntime(2, loop=loop)
    seen: list[str] = []

    async def body() -> None:
        try:
            await asyncio.sleep(1)
            seen.append("task")
        finally:
            with pytest.raises(OSError, match="dead"):
                node.files.write_atomically("/clean", b"")
            seen.append("finally")

    node.spawn(body(), "body")
    node.run_turn()
    node.call_later(1000, lambda: seen.append("timer"))
    node.at_end_of_turn(Phase.WRITE, lambda: seen.append("write"))
    other.call_later(1000, lambda: seen.append("other"))
    node.crash()
    other.advance(2000)
    assert seen == ["finally", "other"]
    assert not node.disk.tree.root.entries


def test_the_same_seed_gives_the_same_chance() -> None:
    def trace(seed: int) -> list[float]:
        runtime = FakeRuntime(seed)
        return [runtime.random.random(), *runtime.new_uuid()]

    assert trace(3) == trace(3)
    assert trace(3) != trace(4)


def test_the_wall_clock_may_jump_and_the_other_does_not(runtime: FakeRuntime) -> None:
    runtime.jump_clock(-5000)
    assert runtime.now_ms() == EPOCH_MS - 5000
    assert runtime.monotonic_ms() == 0.0
