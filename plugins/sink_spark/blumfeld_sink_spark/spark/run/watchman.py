"""Asks the broker again and again beside a query: an outage is seen within seconds, whatever Spark waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

from blumfeld_sink_spark.errors import ArchiveError, AwayError

EVERY_S = 2.0
"""Pause between two questions."""
ANSWER_S = 3.0
"""How long the broker may take to answer before it counts as away."""
END_S = 5.0
"""How long the end waits for a question that is under way."""


class Watchman(AbstractContextManager["Watchman"]):
    """A thread that asks while the context is open.

    :param ask: raises :class:`AwayError` where the broker doesn't answer. Another :class:`ArchiveError` is an answer:
        the query meets it too, and tells it
    """

    def __init__(self, ask: Callable[[], object], every_s: float = EVERY_S) -> None:
        self.trouble = ""
        """The question that the broker leaves without an answer at present, in words; empty while it answers."""
        self.failed = 0
        """How many questions stayed without an answer."""
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
