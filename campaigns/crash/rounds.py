"""kill -9 of a real broker under load: while it serves, while it stops, while it starts; then the account."""

from __future__ import annotations

import random
import statistics
import time
from pathlib import Path

import msgspec

from blumfeld.testing.process import BrokerProcess
from campaigns.crash.load import PARTITIONS, Load
from campaigns.crash.records import Account

KINDS = ("serving", "starting", "stopping")
SERVE_S = (0.5, 2.0)
"""A broker serves so long before it is killed, at least and at most."""
START_S = 0.7
"""A kill of one that starts comes within this time."""
STOP_S = 0.15
"""A kill of one that was asked to stop comes within this time."""


class KillReport(msgspec.Struct):
    """What the rounds came to."""

    kills: dict[str, int]
    restarts: int
    acked: int
    lost: int
    doubled: int
    disordered: int
    commits: int
    recovery_ms: float
    """Median, from the start of the process to its ready line."""
    seconds: float
    wrong: list[str]


class Killing:
    """Rounds of load and kill on one data directory below ``folder``. Moments are drawn from the seed."""

    def __init__(
        self, folder: Path, seed: int, rounds: int, rate: int, storage: str = "storage_local"
    ) -> None:
        settings = ('config."group.initial.rebalance.delay.ms"=0', f"storage.plugin={storage}")
        self._broker = BrokerProcess(folder, settings=settings)
        self._load = Load(self._broker.address, rate)
        self._fate = random.Random(f"kill/{seed}")
        self._rounds = rounds
        self._kills = dict.fromkeys(KINDS, 0)
        self._recoveries_ms: list[float] = []

    def run(self) -> KillReport:
        """All rounds; the broker is gone when this returns."""
        started = time.monotonic()
        account = Account()
        wrong = self._load.ledger.wrong
        try:
            self._broker.start()
            self._load.start()
            for number in range(self._rounds):
                self._round(KINDS[number % len(KINDS)])
            self._load.finish()
            self._load.check_committed()
            for partition in range(PARTITIONS):
                self._load.ledger.check(partition, self._load.read(partition), account)
        finally:
            self._broker.kill()
        printed = self._broker.log_path.read_text(errors="replace")
        if "Traceback" in printed:
            wrong.append(f"the broker's log has a traceback:\n{printed[printed.index('Traceback') :][:1000]}")
        return KillReport(
            kills={kind: count for kind, count in self._kills.items() if count},
            restarts=len(self._recoveries_ms),
            acked=account.acked,
            lost=account.lost,
            doubled=account.doubled,
            disordered=account.disordered,
            commits=self._load.ledger.commits,
            recovery_ms=statistics.median(self._recoveries_ms) if self._recoveries_ms else 0.0,
            seconds=time.monotonic() - started,
            wrong=wrong,
        )

    def _round(self, kind: str) -> None:
        time.sleep(self._fate.uniform(*SERVE_S))
        if kind == "stopping":
            self._broker.terminate()
            time.sleep(self._fate.uniform(0, STOP_S))
        self._kill(kind if kind == "stopping" else "serving")
        if kind == "starting":
            self._broker.launch()
            time.sleep(self._fate.uniform(0, START_S))
            self._kill(kind)
        started = time.monotonic()
        self._broker.start()
        self._recoveries_ms.append((time.monotonic() - started) * 1000.0)
        self._load.check_committed()

    def _kill(self, kind: str) -> None:
        self._broker.kill()
        self._kills[kind] += 1
