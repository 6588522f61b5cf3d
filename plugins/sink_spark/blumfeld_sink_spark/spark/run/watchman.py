"""Asks the broker every two seconds beside a query, so that an outage is seen within seconds.

Spark itself notices after its clients' timeouts, which may be a minute.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

from blumfeld_sink_spark.errors import ArchiveError, AwayError

EVERY_S = 2.0
"""Pause between two questions."""
ANSWER_S = 3.0
"""Time that the broker has for an answer. After it the broker counts as away."""
END_S = 5.0
"""Time that the end waits for a question under way."""


class Watchman(AbstractContextManager["Watchman"]):
    """A daemon thread that asks while the context is open. Another thread may read ``trouble`` and ``failed``.

    :param ask: raises :class:`AwayError` where the broker doesn't answer. Another :class:`ArchiveError` counts as an
        answer, because the query meets the same error and reports it
    """

    def __init__(self, ask: Callable[[], object], every_s: float = EVERY_S) -> None:
        self.trouble = ""
        """Text of the last error while the broker is away; empty while it answers."""
        self.failed = 0
        """Number of questions without an answer."""
        self._ask = ask
        self._every_s = every_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="blumfeld-watchman", daemon=True)

    def __enter__(self) -> Watchman:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join(END_S)

    def _run(self) -> None:
        while not self._end.wait(self._every_s):
            try:
                self._ask()
                self.trouble = ""
            except AwayError as error:
                self.failed += 1
                self.trouble = str(error)
            except ArchiveError:
                self.trouble = ""
