"""Do faults to a broker, one after the other, and count what it holds before and after each."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from blumfeld.testing.process import BrokerProcess, free_port
from campaigns.bad_input.target import Target, good_batch
from campaigns.connection_faults.census import POLL_S, Census, take_settled
from campaigns.connection_faults.fault import Fault, Result, Scene
from campaigns.connection_faults.load import STALL_MS, Background, Seen
from campaigns.waits import await_true

REPETITIONS = 3
REPETITIONS_MAX = 8
"""While memory grows: what only grows to what the highest load needs comes to an end."""
RSS_SLACK_BYTES = 4 << 20
"""Memory that malloc may keep from one repetition to the next without being called a leak."""
BIG_BATCH_BYTES = 1_000_000
BIG_BYTES = 50_000_000
SMALL_BIG_BYTES = 8_000_000
PAIRS = 3
REST_S = 5.0
COUNTS = 4
LOAD_S_MIN = 0.1
"""Time that the others are watched, however quick the fault."""
Said = Callable[[Result], None]


def run(
    faults: Iterable[Fault],
    folder: Path,
    settings: Sequence[str],
    scale: float,
    began: Callable[[str], None],
    said: Said,
) -> list[Result]:
    """All of them, each kind of broker in turn; ``began`` is called with its ready line, ``said`` after each fault."""
    wanted = list(faults)
    results = []
    for nth, kind in enumerate(dict.fromkeys(tuple(fault.settings) for fault in wanted)):
        home = folder / f"broker-{nth}"
        home.mkdir()
        with scene_of(home, (*settings, *kind), scale) as scene:
            began(scene.broker.ready_line)
            for fault in wanted:
                if tuple(fault.settings) == kind:
                    results.append(do(fault, scene))
                    said(results[-1])
            if wrong := at_the_end(scene):
                results[-1].wrong += wrong
    return results


@contextlib.contextmanager
def scene_of(folder: Path, settings: Sequence[str], scale: float) -> Iterator[Scene]:
    """A fresh broker with its topics and the background load."""
    metrics = f"127.0.0.1:{free_port()}"
    broker = BrokerProcess(folder, settings=(f'metrics.bind="{metrics}"', *settings))
    try:
        broker.start()
        target = Target(broker.address, "faults")
        loads = [target.make_topic(f"load-{nth}") for nth in range(PAIRS)]
        quiet, big = target.make_topic("quiet"), target.make_topic("big")
        big_bytes = BIG_BYTES if scale >= 1 else SMALL_BIG_BYTES
        for _ in range(big_bytes // BIG_BATCH_BYTES):
            target.refusal(good_batch(bytes(BIG_BATCH_BYTES)), topic=big)
        with Background(broker.address, loads) as background:
            yield Scene(broker, metrics, target, background, big, big_bytes, quiet, scale)
    finally:
        broker.stop()


def do(fault: Fault, scene: Scene, repetitions: int = REPETITIONS) -> Result:
    """A fault, so many times, with a look at what the broker holds before and after; more often while memory grows."""
    scene.target.round_trip()  # what it opens for good is open
    before = at_rest(scene, fault.settle_s)
    result = Result(fault, before, before, [before.rss_bytes])
    done = 0
    while not result.wrong and (done < repetitions or (grows(result.rss_bytes) and done < REPETITIONS_MAX)):
        _repeat(fault, scene, result)
        done += 1
    if not result.wrong and grows(result.rss_bytes):
        result.wrong.append(f"memory grows: {[size >> 10 for size in result.rss_bytes]} KiB")
    if not_served := scene.target.round_trip():
        result.wrong.append(f"it does not serve on: {not_served}")
    return result


def at_rest(scene: Scene, settle_s: float) -> Census:
    """Return what the broker holds when no connection is left, and the descriptors of the last one are closed."""
    counts = [scene.count()]

    def is_at_rest() -> bool:
        counts.append(scene.count())
        last = counts[-1]
        return len(counts) > COUNTS and not (last.connections or last.parked) and last.fds == counts[-2].fds

    await_true(is_at_rest, max(settle_s, REST_S), POLL_S)
    # The connection of a scrape may be open still at the next count.
    return min(counts, key=lambda count: (count.connections + count.parked, count.fds.total()))


def _repeat(fault: Fault, scene: Scene, result: Result) -> None:
    scene.background.go()
    over = time.monotonic() + LOAD_S_MIN
    try:
        said = fault.act(scene)
        result.said = result.said or said  # the first has met a broker that was not warm yet
    except Exception as error:
        result.wrong.append(f"{type(error).__name__}: {error}")
    time.sleep(max(0.0, over - time.monotonic()))
    _take_seen(result, scene.background.pause())
    before = result.before
    result.after = take_settled(scene.count, before, fault.files_may_stay, fault.settle_s)
    result.rss_bytes.append(scene.broker.rss_bytes())
    result.wrong += [f"leaked: {leak}" for leak in result.after.leaks(before, fault.files_may_stay)]


def _take_seen(result: Result, seen: Seen) -> None:
    result.wrong += seen.wrong(result.fault.stall_ms or STALL_MS)
    result.p99_ms = max(result.p99_ms, seen.p99_ms)
    result.worst_ms = max(result.worst_ms, seen.worst_ms)
    result.worst_end_to_end_ms = max(result.worst_end_to_end_ms, seen.worst_end_to_end_ms)


def grows(rss: Sequence[int]) -> bool:
    """Whether memory still grows: in each of the last two repetitions, the very first excepted, which warms things up.

    :param rss: before, and after each repetition
    """
    steps = [after - before for before, after in pairwise(rss[1:][-3:])]
    return len(steps) == 2 and min(steps) > RSS_SLACK_BYTES // 4 and sum(steps) > RSS_SLACK_BYTES


def at_the_end(scene: Scene) -> list[str]:
    """Return the broken promises after all faults of a broker: lost records, a traceback, an exit that isn't clean."""
    wrong = []
    if lost := scene.target.lost():
        wrong.append(f"lost: {lost}")
    scene.background.close()
    if status := scene.broker.stop():
        wrong.append(f"after SIGTERM the exit status was {status}")
    wrong += filter(None, [scene.broker.traceback()])
    return wrong
