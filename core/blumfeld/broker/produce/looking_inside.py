"""Large batches of topics whose records are looked at: off the loop (ADR 0014)."""

from __future__ import annotations

from collections import deque

from blumfeld.config.values import TopicConfig
from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Runtime
from blumfeld.wire.record_batch import RecordBatch


class LookingInside:
    """Looks at large batches in a worker thread, one at a time.

    Each may need 100 MB, and takes the interpreter from the loop now and then.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._due: deque[tuple[RecordBatch, TopicConfig, Completion[RecordBatch]]] = deque()
        self._running = False

    def look(self, batch: RecordBatch, config: TopicConfig) -> Completion[RecordBatch]:
        """The batch as the topic wants it, or its ``BrokerError``. Its bytes must stay as they are meanwhile."""
        found: Completion[RecordBatch] = Completion()
        self._due.append((batch, config, found))
        if not self._running:
            self._running = True
            self._runtime.spawn(self._run(), "look-inside-batches")
        return found

    async def _run(self) -> None:
        from blumfeld.broker.replicas.record_rules import conformed_off_the_loop

        while self._due:
            batch, config, found = self._due.popleft()
            try:
                looked = await self._runtime.offload(conformed_off_the_loop, batch, config)
            except Exception as error:
                found.fail(error)
            else:
                found.complete(looked)
        self._running = False
