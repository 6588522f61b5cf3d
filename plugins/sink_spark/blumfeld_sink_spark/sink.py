"""The sink role: an archive as a thing with ``run`` and ``stop``, for those who compose their own process."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from blumfeld_sink_spark import settings as settings_module
from blumfeld_sink_spark.settings import ArchiveSettings

if TYPE_CHECKING:
    from blumfeld_sink_spark.spark.driver import OnProgress
    from blumfeld_sink_spark.spark.progress import Totals


class SparkSink:
    """A live archive of these settings. Runs Spark beside the event loop, in a thread of its own.

    :raises SettingsError: the settings can't be
    """

    def __init__(self, settings: ArchiveSettings, on_progress: OnProgress | None = None) -> None:
        self._settings = settings_module.check(settings)
        self._on_progress = on_progress
        self._stop = threading.Event()
        self.totals: Totals | None = None
        """What it came to, after ``run``."""

    def describe(self) -> str:
        """What it reads and writes, for ``plan``."""
        topics = ", ".join(self._settings.topics) or f"topics like {self._settings.topic_pattern}"
        return (
            f"archive {self._settings.name}: {topics} at {self._settings.bootstrap} by "
            f"{', '.join(self._settings.decoders)} into {self._settings.root} (reader {self._settings.reader})"
        )

    async def run(self) -> None:
        """Archives until stopped; returns at once where that was before. Cancelled, it stops and waits for the end.

        :raises ArchiveError: as :func:`blumfeld_sink_spark.spark.driver.archive`
        """
        from blumfeld_sink_spark.spark.driver import archive

        if self._stop.is_set():
            return
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(None, archive, self._settings, "run", self._stop, self._on_progress)
        try:
            self.totals = await asyncio.shield(work)
        except asyncio.CancelledError:
            self._stop.set()
            await work
            raise

    async def stop(self) -> None:
        """Finish the batch at hand and return from ``run``. Legal without run."""
        self._stop.set()
