"""Record checks of batches that are too large for the loop, in a worker thread (ADR 0045)."""

from __future__ import annotations

from collections import deque

from blumfeld.config.values import TopicConfig
from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Runtime
from blumfeld.wire.batches.record_batch import RecordBatch


class RecordInspection:
    """Checks the records of large batches in a worker thread, one batch at a time.

    One at a time, because each may need 100 MB, and the worker competes with the loop for the interpreter lock.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._due: deque[tuple[RecordBatch, TopicConfig, Completion[RecordBatch]]] = deque()
        self._running = False

    def look(self, batch: RecordBatch, config: TopicConfig) -> Completion[RecordBatch]:
        """Completes with the batch as the topic requires it, or fails with a ``BrokerError``.

        The caller must keep the batch's bytes unchanged until then.
        """
        outcome: Completion[RecordBatch] = Completion()
        self._due.append((batch, config, outcome))
        if not self._running:
            self._running = True
            self._runtime.spawn(self._run(), "look-inside-batches")
        return outcome

    async def _run(self) -> None:
        from blumfeld.broker.replicas.rules.record_rules import conformed_off_the_loop

        while self._due:
            batch, config, outcome = self._due.popleft()
            try:
                looked = await self._runtime.offload(conformed_off_the_loop, batch, config)
            except Exception as error:
                outcome.fail(error)
            else:
                outcome.complete(looked)
            # The traceback of an error holds this frame, and would keep the batch in a circle.
            del batch, outcome
        self._running = False
