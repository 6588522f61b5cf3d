"""Loads shards in slices: one slice of one shard in each turn, so that other requests go on.

Without slices a node that becomes leader of fifty partitions at once would answer no request until the last is loaded.
"""

from __future__ import annotations

from blumfeld.coordinator.runtime.host import ShardHost
from blumfeld.spi.runtime import Runtime

LOADS_AT_ONCE = 4
"""Shards that take turns; the others wait until one of these is done. So one long log doesn't delay all shards, and
most are done early. The number is that of Kafka's ``group.coordinator.threads``."""


class Loads:
    """Replays the logs of hosts, in the order of :meth:`begin`. When it is done with a host, that is active or
    dropped."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._hosts: list[ShardHost] = []
        self._waiting = 0
        """Number of further hosts that wait for a cold read."""
        self._due = False

    def begin(self, host: ShardHost) -> None:
        """Replay the log of a host: at once if it is short and no other is being replayed, otherwise in later turns."""
        if self._hosts or host.load_slice():
            self._take(host, len(self._hosts))

    def __len__(self) -> int:
        """Number of hosts that are being loaded."""
        return len(self._hosts) + self._waiting

    def _take(self, host: ShardHost, at: int) -> None:
        """Queue a host for its next slice. A host that waits for a cold read gives its place to others."""
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
        finally:  # a defect in one shard must not stop the loading of the others
            if more:
                self._take(host, LOADS_AT_ONCE - 1)
            self._go_on()
