"""A node whose disk fills: with tiered storage copies make room, and without it producers get an error.

Each run has a disk of its own (:class:`campaigns.cluster.disks.Disks`), and its store outside it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from pathlib import Path

import attrs
import msgspec

from campaigns.clients.load.acknowledged_records import Account
from campaigns.clients.load.load import Load
from campaigns.clients.load.producers import CUT_SHORT_S
from campaigns.cluster.disks import Disks
from campaigns.tiered.kills import BigRecords
from campaigns.tiered.nodes import TieredNodes
from campaigns.waits import await_true

DISK_MB = 120
RATE_PER_S = 5_000.0
TOPIC = "load"
SEGMENT_BYTES = 4 << 20
LIMIT_S = 150.0
"""Longest wait for records to be acknowledged again on a disk that was full."""
LOOK_S = 0.05


@attrs.frozen
class Scenario:
    """One way in which a disk fills."""

    name: str
    config: dict[str, str]
    """Settings of the topic."""
    until_s: float
    """Seconds under load."""
    store_away: bool = False
    """The store is away until the disk is full."""
    ballast_s: float = 0.0
    """Another file takes all that is left for so long."""
    fills_for_good: bool = False
    """Nothing makes room: the producer gets errors until the end."""


def _tiered(delay_ms: int) -> dict[str, str]:
    config = {"remote.storage.enable": "true", "local.retention.bytes": "1"}
    return config | {"segment.bytes": str(SEGMENT_BYTES), "file.delete.delay.ms": str(delay_ms)}


SCENARIOS = (
    Scenario("not tiered", {"segment.bytes": str(SEGMENT_BYTES)}, 25, fills_for_good=True),
    Scenario("tiered", _tiered(500), 30),
    Scenario("tiered, files stay for 60 s", _tiered(60_000), 90),
    Scenario("tiered, store away until it is full", _tiered(500), 45, store_away=True),
    Scenario("tiered, full of another file for 15 s", _tiered(500), 40, ballast_s=15),
)


class DiskReport(msgspec.Struct, kw_only=True):
    """One run."""

    scenario: str
    account: Account
    acked_mb: int
    pause_s: float
    """Longest time between two acknowledgements; without the wait at the end if the disk is full for good."""
    used_mb_max: int
    remote_segments: int
    said: list[str]
    """Lines of the node's log about its disk."""
    verified: str
    wrong: list[str]


class FullDisk:
    """One scenario, in a new folder."""

    def __init__(self, scenario: Scenario, folder: Path, disks: Disks, nth: int) -> None:
        """:param nth: the disk of this run among ``disks``, from 1 on"""
        self._scenario = scenario
        self._disks, self._nth = disks, nth
        self._nodes = TieredNodes(folder, 1)
        self._disk = disk_of(folder)
        self._used_mb = 0
        self._ended = threading.Event()
        self._load = Load(self._nodes.cluster.addresses, 1, RATE_PER_S, TOPIC, BigRecords)

    def run(self) -> DiskReport:
        """Fill the disk, and look at all that was acknowledged.

        :raises NodeError: the node doesn't start
        :raises NoLoadError: it takes no records at first
        """
        watcher = threading.Thread(target=self._watch, daemon=True)
        try:
            self._nodes.cluster.start()
            self._load.make_topic(1, self._scenario.config)
            self._load.start()
            watcher.start()
            self._live()
            self._load.finish(CUT_SHORT_S if self._scenario.fills_for_good else LIMIT_S)
            return self._report()
        finally:
            self._ended.set()
            self._load.finish(CUT_SHORT_S)
            self._nodes.cluster.stop()

    def _live(self) -> None:
        scenario, began = self._scenario, time.monotonic()
        if scenario.store_away:
            away = self._nodes.store.with_name("store-away")
            self._nodes.store.rename(away)
            if not await_true(lambda: self._free_bytes() < 1 << 20, scenario.until_s, LOOK_S):
                self._load.wrong.append("the disk didn't fill while the store was away")
            time.sleep(3)  # whatever is left is used up, too
            away.rename(self._nodes.store)
        if scenario.ballast_s:
            time.sleep(5)
            self._disks.fill(self._nth)
            ends = time.monotonic() + scenario.ballast_s
            while time.monotonic() < ends:
                self._disks.fill(self._nth)  # copies make room, and that is taken, too
                time.sleep(LOOK_S)
            self._disks.free(self._nth)
        if scenario.store_away or scenario.ballast_s:
            freed = time.monotonic()
            if not self._load.await_acks(freed, LIMIT_S):
                self._load.wrong.append(
                    f"no record was acknowledged for {LIMIT_S:.0f} s after there was room"
                )
        time.sleep(max(0.0, began + scenario.until_s - time.monotonic()))

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_S):
            self._used_mb = max(self._used_mb, (DISK_MB << 20) - self._free_bytes() >> 20)

    def _free_bytes(self) -> int:
        stats = os.statvfs(self._disk)
        return stats.f_bavail * stats.f_frsize

    def _report(self) -> DiskReport:
        load, scenario = self._load, self._scenario
        wrong = load.wrong
        if scenario.fills_for_good:
            wrong = [line for line in wrong if "neither acknowledged nor refused" not in line]
        account = load.account()
        wrong = [*wrong, *(line for line in load.wrong if line not in wrong and "neither" not in line)]
        verified = ""

        def is_swept() -> bool:
            nonlocal verified
            done, verified = self._nodes.verify()
            return done

        if not scenario.fills_for_good and not await_true(is_swept, 60, 1.0):
            wrong.append(f"the store isn't clean: {verified}")
        node = self._nodes.cluster.nodes[0]
        log = node.log_path.read_text(errors="replace").splitlines()
        said = sorted({_short(line) for line in log if any(word in line for word in SAID)})
        if scenario.fills_for_good and not any("ENOSPC" in line for line in said):
            wrong.append("the node's log doesn't say that its disk is full")
        if traceback := node.traceback():
            wrong.append(traceback)
        times = sorted(chain.from_iterable(load.ack_times))
        return DiskReport(
            scenario=scenario.name,
            account=account,
            acked_mb=account.acked * 2 // 1000,
            pause_s=round(max((later - earlier for earlier, later in pairwise(times)), default=0.0), 1),
            used_mb_max=self._used_mb,
            remote_segments=len(list(self._nodes.store.glob("*/*.manifest"))),
            said=said,
            verified=verified.splitlines()[-1] if verified else "",
            wrong=wrong,
        )


SAID = ("write failed", "there is room again", "writes succeed again", "tiering failed", "lacks room")


def _short(line: str) -> str:
    """Return a line of the log without its time."""
    return line.partition(" ")[2][:160]


def disk_of(folder: Path) -> Path:
    """Return the data directory of a run's node: where its disk is mounted."""
    return folder / "node1" / "data"


def fill_disks(folder: Path, done: Callable[[DiskReport], None], only: Sequence[str] = ()) -> None:
    """Run the scenarios, one after the other, and tell of each.

    :param only: names of scenarios; all if none is given
    :raises NoDisksError: this machine or this user can't mount disks
    """
    scenarios = [scenario for scenario in SCENARIOS if not only or scenario.name in only]
    folders = [folder / f"disk{nth}" for nth in range(1, len(scenarios) + 1)]
    disks = Disks([disk_of(place) for place in folders], DISK_MB)
    try:
        for nth, (scenario, place) in enumerate(zip(scenarios, folders, strict=True), 1):
            done(FullDisk(scenario, place, disks, nth).run())
    finally:
        disks.end(None)
