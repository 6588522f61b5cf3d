"""Shards that are being replayed: a slice of one of them each turn, so that other work goes on beside them.

A node that becomes leader of fifty partitions at once would otherwise answer nobody until the last is there.
"""

from __future__ import annotations

from blumfeld.coordinator.runtime.host import ShardHost
from blumfeld.spi.runtime import Runtime

LOADS_AT_ONCE = 4
"""Shards that take turns; the others wait for one of them to be done. So a long log doesn't hold up all, and most are
done early. As many as Kafka's ``group.coordinator.threads``."""


class Loads:
    """Replays the logs of hosts, in the order in which they came. Each is active, or dropped, when it leaves."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._hosts: list[ShardHost] = []
        self._waiting = 0
        """Others, whose logs are read for them."""
        self._due = False

    def begin(self, host: ShardHost) -> None:
        """Replay the log of a host: a short one at once if no other is being replayed, otherwise in turns to come."""
        if self._hosts or host.load_slice():
            self._take(host, len(self._hosts))

    def __len__(self) -> int:
        """How many there are."""
        return len(self._hosts) + self._waiting

    def _take(self, host: ShardHost, at: int) -> None:
        """Go on with it when its turn has come; who waits for his log lets others have theirs."""
        if host.waits_for is None:
            self._hosts.insert(at, host)
            self._go_on()
            return
        self._waiting += 1
        host.waits_for.when_done(lambda _: self._came(host))

    def _came(self, host: ShardHost) -> None:
        self._waiting -= 1
        self._hosts.insert(LOADS_AT_ONCE - 1, host)
        self._go_on()

    def _go_on(self) -> None:
        if self._hosts and not self._due:
            self._due = True
            self._runtime.call_later(0, self._step)

    def _step(self) -> None:
        self._due = False
        host = self._hosts.pop(0)
        more = False
        try:
            more = host.load_slice()
        finally:  # a defect in one shard is no reason to leave the others unloaded
            if more:
                self._take(host, LOADS_AT_ONCE - 1)
            self._go_on()
