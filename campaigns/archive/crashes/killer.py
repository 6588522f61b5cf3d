"""The killer: a driver archives, a broker is fed, and SIGKILL hits either of them, Spark's workers or its JVM."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable

import attrs

from campaigns.archive.common.brokers import Broker
from campaigns.archive.common.process import Command, kill_process
from campaigns.waits import await_true

VICTIMS = ("driver", "worker", "jvm", "broker")
PROGRESS_S = 120.0
"""Time in which a driver must commit something after its start, or after a kill that it survived."""
AFTER_PROGRESS_S = 3.0
DURING_START = 0.2
"""Share of the kills that come at any time. The others wait for a commit."""
START_S = 12.0
PAUSE_S = 2.0
MAX_OFFSETS = (40, 3_000)
"""Bounds of ``maxOffsetsPerTrigger``, which is random at each start."""


@attrs.define
class Killed:
    """The result of the kills."""

    kills: Counter[str] = attrs.field(factory=Counter)
    starts: int = 0
    survived: int = 0
    """Number of kills of other processes after which the driver continued."""
    ended: Counter[str] = attrs.field(factory=Counter)
    """Number of drivers that ended by themselves after another process was killed, by ``victim: status``."""
    wrong: list[str] = attrs.field(factory=list)


class Killer:
    """Kills the victims in random order, each equally often, and starts them again."""

    def __init__(
        self,
        start: Callable[[int], Command],
        commits: Callable[[], int],
        broker: Broker,
        seed: int,
        say: Callable[[str], None],
        patience: float = 1.0,
    ) -> None:
        """
        :param start: starts a driver, which continues where the last one was, with so many messages a batch at most
        :param commits: tells the number of committed batches
        :param patience: factor for all time bounds
        """
        self._progress_s = PROGRESS_S * patience
        self.result = Killed()
        self._start = start
        self._commits = commits
        self._broker = broker
        self._random = random.Random(seed)
        self._say = say
        self._drivers: list[Command] = []

    def run(self, count: int, victims: tuple[str, ...] = VICTIMS) -> Killed:
        """Does ``count`` kills. At the end no driver runs, and the broker does."""
        chosen = [victims[number % len(victims)] for number in range(count)]
        self._random.shuffle(chosen)
        began = time.monotonic()
        try:
            for number, victim in enumerate(chosen, 1):
                happened = self._one(victim)
                took = time.monotonic() - began
                self._say(f"{took:6.1f} s  kill {number}/{count}: {happened}; {self._commits()} commits")
            self._driver()
            self._await_progress("the last start")
            self._end_in_good_order()
        finally:
            for driver in self._drivers:
                driver.kill_all()
        return self.result

    def _one(self, victim: str) -> str:
        """Does one kill and starts the victim again. Returns what happened, for people."""
        driver = self._driver()
        if self._random.random() < DURING_START:
            time.sleep(self._random.uniform(0, START_S))
        else:
            self._await_progress("a start")
            time.sleep(self._random.uniform(0, AFTER_PROGRESS_S))
        driver = self._driver()
        if victim == "broker":
            self._broker.kill()
            time.sleep(self._random.uniform(0, PAUSE_S))
            self._broker.start()
        elif victim == "driver":
            driver.kill()
            time.sleep(self._random.choice([0.0, self._random.uniform(0, PAUSE_S)]))
        elif not self._kill_member(driver, victim):
            victim = "driver"  # the driver has no such process yet
            driver.kill()
        self.result.kills[victim] += 1
        return f"{victim}{self._aftermath(victim)}"

    def _kill_member(self, driver: Command, victim: str) -> bool:
        await_true(lambda: bool(self._members(driver, victim)) or not driver.running, START_S, 0.1)
        members = self._members(driver, victim)
        # Many of Spark's Python processes are idle. Often several are killed at once, so that busy ones are hit too.
        chosen = self._random.sample(members, self._random.randint(1, len(members))) if members else []
        killed = [kill_process(pid) for pid in chosen]
        return any(killed)

    def _members(self, driver: Command, victim: str) -> list[int]:
        mark = "SparkSubmit" if victim == "jvm" else "pyspark"
        members = [pid for pid, line in driver.family() if mark in line and pid != driver.pid]
        if victim == "worker":
            jvms = {pid for pid, line in driver.family() if "SparkSubmit" in line}
            members = [pid for pid in members if pid not in jvms]
        return members

    def _aftermath(self, victim: str) -> str:
        """Waits until the driver continues or ends. A driver that does neither in time hangs, which is an error.

        Returns what happened, for people.
        """
        if victim == "driver":
            return ""
        driver = self._drivers[-1]
        began = time.monotonic()
        before = self._commits()
        while time.monotonic() < began + self._progress_s:
            if not driver.running:
                outcome = driver.wait(1.0)
                self.result.ended[f"{victim}: {outcome.status}"] += 1
                return f", the driver ended with {outcome.status} after {time.monotonic() - began:.0f} s"
            # One batch may have been committed just before the kill took effect.
            if self._commits() > before + 1:
                self.result.survived += 1
                return f", the driver went on after {time.monotonic() - began:.0f} s"
            time.sleep(0.1)
        self.result.wrong.append(f"after the kill of a {victim} the driver neither went on nor ended")
        driver.kill_all()
        return ", the driver hung"

    def _driver(self) -> Command:
        """Returns the running driver, or starts a new one."""
        if not self._drivers or not self._drivers[-1].running:
            # An earlier driver's JVM may still run and write. It isn't killed: the archive must survive that, too.
            self._drivers.append(self._start(self._random.randint(*MAX_OFFSETS)))
            self.result.starts += 1
        return self._drivers[-1]

    def _await_progress(self, since: str) -> None:
        """Waits for a new commit. Starts a driver that ends meanwhile again, at most three times."""
        before = self._commits()
        began = time.monotonic()
        left = 3
        while self._commits() <= before:
            driver = self._drivers[-1] if self._drivers else self._driver()
            if not driver.running:
                outcome = driver.wait(1.0)
                self.result.ended[f"start: {outcome.status}"] += 1
                left -= 1
                if not left:
                    self.result.wrong.append(f"it does not start: {outcome.said}")
                    raise RuntimeError(f"it does not start: {outcome.said}")
                self._driver()
            if time.monotonic() > began + self._progress_s:
                self.result.wrong.append(f"nothing was committed in {self._progress_s:.0f} s after {since}")
                driver.kill_all()
                return
            time.sleep(0.1)

    def _end_in_good_order(self) -> None:
        driver = self._driver()
        driver.stop()
        outcome = driver.wait(60.0)
        if outcome.status not in (0, -15, 143):
            self.result.wrong.append(f"SIGTERM: exit status {outcome.status}: {outcome.said}")
        self.result.ended[f"SIGTERM: {outcome.status}"] += 1
