"""A producer of the load that is Kafka's own: VerifiableProducer, idempotent and with acks=all.

Its records are numbered over all partitions, which their keys choose.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

from campaigns.clients.java import TOOLS, tool_command
from campaigns.clients.load.producers import FINISH_S, Watcher
from campaigns.clients.programs import Program

KEYS = 60
"""Enough for each partition to have some."""
SETTINGS = {
    "enable.idempotence": "true",
    "retries": "2147483647",
    "request.timeout.ms": "2000",
    "reconnect.backoff.max.ms": "200",
    "retry.backoff.max.ms": "200",
    "socket.connection.setup.timeout.ms": "2000",
    "linger.ms": "2",
}
"""The same patience as librdkafka's: the tool itself would not try again."""
ENDED = (0, -signal.SIGTERM, 128 + signal.SIGTERM)


class JavaProducer:
    """VerifiableProducer in a process of its own."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, rate_per_s: float, log: Path | None = None
    ) -> None:
        """:param log: gets what it prints beside its acknowledgements"""
        self._log = log
        self.sent = [0] * partitions
        """Records that were acknowledged or given up, by partition."""
        options = ("--bootstrap-server", bootstrap, "--topic", topic, "--throughput", str(int(rate_per_s)))
        more = ("--acks", "-1", "--repeating-keys", str(KEYS), "--command-config", "/dev/stdin")
        self._command = [*tool_command(TOOLS + "VerifiableProducer"), *options, *more]
        self._program: Program | None = None
        self._watcher: Watcher | None = None

    @property
    def is_alive(self) -> bool:
        """Whether it still sends or waits for answers."""
        return self._program is not None and self._program.is_alive

    def start(self, watcher: Watcher) -> None:
        """Begin; send until :meth:`finish`."""
        self._watcher = watcher
        settings = "\n".join(f"{name}={value}" for name, value in SETTINGS.items())
        self._program = Program("java producer", self._command, settings, self._hear)
        self._program.finish()

    def finish(self, wait_s: float = FINISH_S) -> None:
        """Send nothing new, and wait until every record is acknowledged or given up, for ``wait_s`` at most."""
        if self._program is None:
            return
        self._program.signal(signal.SIGTERM)
        in_time = self._program.await_end(wait_s)
        if not in_time:
            self._program.kill()
        if self._watcher is not None and (not in_time or self._program.status not in ENDED):
            self._watcher.failed(f"the Java producer ended with status {self._program.status}")

    def _hear(self, line: str) -> None:
        assert self._watcher is not None
        try:
            event = json.loads(line)
        except ValueError:
            if self._log is not None:
                with self._log.open("a") as log:
                    log.write(line)
            return
        if event.get("name") == "producer_send_success":
            self.sent[event["partition"]] += 1
            self._watcher.acknowledged(event["partition"], int(event["value"]), event["offset"])
        elif event.get("name") == "producer_send_error":
            self.sent[0] += 1
            self._watcher.refused(f"java: {event.get('exception')} {event.get('message')}")
