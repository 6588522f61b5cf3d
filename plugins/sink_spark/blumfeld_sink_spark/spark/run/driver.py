"""One run of an archive, from the checks before it to its totals.

The commit protocol of a batch: Spark plans it, its tasks stage files, the writer publishes them with one commit record,
and Spark notes the batch as done. After a crash at any point the next run repeats the batch or finds it published.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event as StopEvent
from typing import Any, Literal

import attrs
import msgspec
import pyspark

from blumfeld_sink_spark import apply
from blumfeld_sink_spark.errors import ArchiveError, AwayError
from blumfeld_sink_spark.files.parquet import compression_of
from blumfeld_sink_spark.ledger.formats.outbox import deliver
from blumfeld_sink_spark.ledger.ledger import Ledger
from blumfeld_sink_spark.ledger.writers.lease import Lease
from blumfeld_sink_spark.settings import ArchiveSettings, absolute, forgone
from blumfeld_sink_spark.spark import failures
from blumfeld_sink_spark.spark.run.patience import Patience
from blumfeld_sink_spark.spark.run.progress import (
    Back,
    Event,
    Notice,
    ProgressFile,
    Step,
    Totals,
    Waiting,
    batch_done,
)
from blumfeld_sink_spark.spark.run.readers import Choice, choose, stream
from blumfeld_sink_spark.spark.run.start_offsets import Beginning, begin
from blumfeld_sink_spark.spark.run.watchman import ANSWER_S, Watchman
from blumfeld_sink_spark.spark.runtime.session import Session, is_local, open_session
from blumfeld_sink_spark.spark.tasks.batch_writer import SINK, ArchiveSink
from blumfeld_sink_spark.spark.topics import offset_plans
from blumfeld_sink_spark.spark.topics.client import START_PATIENCE_S, Topics
from blumfeld_sink_spark.stores.contract import ArchiveStore
from blumfeld_sink_spark.stores.roots import open_store

Mode = Literal["run", "once", "backfill"]
OnProgress = Callable[[Event], None]

POLL_S = 0.1
RENEW_S = 5.0
PROBE_S = 5.0
"""Time that a broker which was away has for an answer. After it the try counts as failed."""
STOP_PATIENCE_S = 60.0
"""Time that a stop waits for the batch at hand. A batch that isn't done by then is run again at the next start."""


def archive(
    settings: ArchiveSettings,
    mode: Mode = "once",
    stop: StopEvent | None = None,
    on_progress: OnProgress | None = None,
    session: Session | None = None,
) -> Totals:
    """Archives the topics' present messages (``once``), all messages until ``stop`` is set (``run``), or the offsets
    from ``starting`` to ``ending`` (``backfill``). After any end of a call, the next call goes on.

    A broker (or a service that a decoder asks) that goes away ends ``once`` and ``backfill`` after the client's
    timeout. ``run`` keeps the lease, waits for ``reconnect_timeout_ms`` at most, and goes on behind the published
    batches. At the start the broker must answer in every mode: a wrong address looks like a broker that is away.
    An outage is reported within seconds of its begin, again while it lasts, and at its end.

    The call starts and stops Spark. A given ``session`` stays open. Without new messages ``once`` and ``backfill``
    end without Spark. Call it outside of an event loop. It takes about 5 s before the first batch.

    :param on_progress: called with each event, in this thread
    :raises SettingsError: the settings are wrong. Nothing was opened
    :raises LedgerConflictError: another writer holds the archive, or a commit would overlap or leave a hole
    :raises ArchiveError: the broker, a topic, Java or the disk refuses; the text says what to do. Published batches
        stay, no record is lost, and the next call goes on
    """
    started = time.monotonic()
    settings = absolute(settings)
    tell = on_progress or (lambda event: None)
    compression_of(settings.compression)
    for topic in settings.topics:
        apply.decoders_for(topic, settings)
    choice = choose(settings, mode)
    tell(Notice(text=f"reader {choice.reader}: {choice.why}"))
    if text := forgone(settings):
        tell(Notice(text=text))
    store = open_store(settings.root)
    topics = Topics(settings)
    tell(Step(text=f"asking {settings.bootstrap} for its topics, for {START_PATIENCE_S:g} s at most"))
    for topic in sorted({topic for topic, _ in topics.places()}):
        apply.decoders_for(topic, settings)
    # Before the ledger is read: from here on no other run of this archive can commit behind our back.
    lease = Lease(store, settings.name)
    lease.take()
    try:
        # An earlier run may have died after a commit and before Delta or Iceberg heard of it.
        deliver(store, Ledger(store), settings)
        beginning = begin(settings, mode, store, topics, tell)
        run = _Run(settings, mode, choice, beginning, store, lease, stop or StopEvent(), tell, session)
        totals = run.run()
    finally:
        with suppress(OSError):
            lease.release()
    totals.seconds = time.monotonic() - started
    return totals


@attrs.define
class _Run:
    settings: ArchiveSettings
    mode: Mode
    choice: Choice
    beginning: Beginning
    store: ArchiveStore
    lease: Lease
    stop: StopEvent
    tell: OnProgress
    given: Session | None
    totals: Totals = attrs.field(factory=Totals)
    _seen: int = -1
    _ledger: Ledger = attrs.field(init=False)
    _file: ProgressFile = attrs.field(init=False)
    _session: Session = attrs.field(init=False)
    _renewed: float = attrs.field(factory=time.monotonic)
    _patience: Patience = attrs.field(init=False)
    _probe: Topics | None = None
    _latest: tuple[str, str] = ("", "")
    """Run id and time of the last trigger that was seen."""

    def run(self) -> Totals:
        self.totals.query = self.beginning.identity.query
        self.totals.reader = self.choice.reader
        self.totals.ends = offset_plans.to_json(self.beginning.ends)
        self._ledger = Ledger(self.store)
        self._file = ProgressFile(self.settings)
        self._seen = self.beginning.last_batch
        self._patience = Patience(self.settings.reconnect_timeout_ms)
        if self.mode != "run" and self.given is None and self.beginning.nothing_new:
            self.tell(Notice(text="nothing is new behind what is archived: ended without Spark"))
            return self.totals
        if self.given is None:
            cluster_note = "" if is_local(self.settings.master) else f", then asking {self.settings.master}"
            self.tell(Step(text=f"starting Spark {pyspark.__version__}, its JVM first{cluster_note}"))
        self._session = self.given or open_session(self.settings, self.choice.jars)
        self.lease.renew()  # Spark's start may take a good part of the lease on a busy machine
        try:
            while self._worked_until_away():
                pass
        finally:
            self._tell_said()
            if self.given is None:
                self._session.stop()
        return self.totals

    def _worked_until_away(self) -> bool:
        """Runs one query to its end. Returns True if the broker went away and is back: another query can go on."""
        try:
            with _spoken(self._session), Watchman(self._ask) as watchman:
                self.tell(Step(text="Spark plans the first batch and starts its Python workers"))
                self._watch(self._start(self._session.spark), watchman)
        except AwayError as error:
            if self.mode != "run" or not self.settings.reconnect_timeout_ms:
                raise
            return self._back(error)
        return False

    def _back(self, error: AwayError) -> bool:
        """Waits until the broker answers. Returns False if the archive is stopped before.

        :raises ArchiveError: it was away for too long, or it is back with other topics or offsets
        """
        while True:
            pause_s = self._patience.pause_s(time.monotonic())
            if pause_s is None:
                raise AwayError(
                    f"{error}; it was away for {self.settings.reconnect_timeout_ms / 1000:g} s, which is all that "
                    "archive.reconnect_timeout_ms allows. Nothing is lost: start again when it is back"
                ) from error
            away_s = self._patience.away_s(time.monotonic())
            self.tell(Waiting(text=str(error), away_s=away_s, next_s=pause_s))
            if self._stopped_within(pause_s):
                return False
            try:
                topics = Topics(self.settings, PROBE_S)
                self.beginning = begin(self.settings, self.mode, self.store, topics, self.tell)
                return True
            except AwayError as again:
                error = again

    def _stopped_within(self, seconds: float) -> bool:
        """Waits and renews the lease meanwhile. Returns whether the archive was stopped."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self.stop.wait(min(left, RENEW_S)):
                return True
            self._renew()
        return self.stop.is_set()

    def _start(self, spark: Any) -> Any:
        rows = stream(spark, self.settings, self.choice.reader, self.beginning.identity)
        spark.dataSource.register(ArchiveSink)
        writer = (
            rows.writeStream.format(SINK)
            .option("settings", msgspec.json.encode(self.settings).decode())
            .option("query", self.beginning.identity.query)
            # Spark's connector reads a new partition from offset 0 in the batch that meets it, our sources in the next.
            .option("fresh", "0" if self.choice.reader == "jvm" else "")
            .option("reader", self.choice.reader)
            .option(
                "checkpointLocation",
                # No as_uri(): Spark takes %20 for a part of the name, and would keep its log in another folder.
                f"file://{Path(self.settings.checkpoint_location.removeprefix('file://')).absolute()}",
            )
            .queryName(self.settings.name)
        )
        if self.mode == "run":
            return writer.trigger(processingTime=f"{self.settings.trigger_ms} milliseconds").start()
        return writer.trigger(availableNow=True).start()

    def _ask(self) -> None:
        if self._probe is None:
            self._probe = Topics(self.settings, ANSWER_S)
        self._probe.latest(list(self.beginning.ends))

    def _watch(self, query: Any, watchman: Watchman) -> None:
        """Reports batches and outages and keeps the lease, until the query ends or is to be stopped."""
        failed_before = 0
        while query.isActive:
            if self.stop.wait(POLL_S):
                self._stop(query)
                return
            self._tell_done(query)
            self._tell_said()
            if watchman.failed > failed_before:
                failed_before = watchman.failed
                self._tell_away(watchman.trouble)
            elif not watchman.trouble and not self._patience.tries:
                # After a failed query the outage ends with a batch: the broker may answer while reads still fail.
                self._tell_back()
            self._renew()
        failed = query.exception()
        self._tell_done(query)
        if failed is not None:
            raise failures.as_archive_error(str(failed))

    def _stop(self, query: Any) -> None:
        """Stops the query between two batches. A batch that is cut is run again at the next start."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        until = time.monotonic() + STOP_PATIENCE_S
        try:
            last = self._last_batch(query)
            while query.isActive and query.status["isTriggerActive"] and time.monotonic() < until:
                if self._last_batch(query) > last:
                    break
                time.sleep(POLL_S)
                self._renew()
            query.stop()
            self._tell_done(query)
        except (Py4JError, PySparkException, ConnectionError):
            self.tell(
                Notice(text="Spark ended in the middle of a batch, which is done again at the next start")
            )

    def _last_batch(self, query: Any) -> int:
        progress = query.lastProgress
        return progress["batchId"] if progress else -1

    def _tell_done(self, query: Any) -> None:
        recent = query.recentProgress
        if recent and (latest := (recent[-1]["runId"], recent[-1]["timestamp"])) != self._latest:
            self._latest = latest
            self._tell_back()
        for progress in recent:
            batch = progress["batchId"]
            if batch <= self._seen:
                continue
            record = self._ledger.find(self.beginning.identity.query, batch)
            if record is None:
                continue  # a trigger that found nothing new
            self._seen = batch
            done = batch_done(record, progress)
            self.totals.add(done)
            self._file.add(done)
            self.tell(done)

    def _tell_away(self, text: str) -> None:
        if text:
            self._patience.found_away(time.monotonic())
            self.tell(Waiting(text=text, away_s=self._patience.away_s(time.monotonic()), next_s=0))

    def _tell_back(self) -> None:
        away_s = self._patience.worked(time.monotonic())
        if away_s is not None:
            self.tell(Back(away_s=away_s))

    def _tell_said(self) -> None:
        for line in self._session.said():
            self.tell(Notice(text=line))

    def _renew(self) -> None:
        if time.monotonic() - self._renewed > RENEW_S:
            self.lease.renew()
            self._renewed = time.monotonic()


@contextmanager
def _spoken(session: Session) -> Iterator[None]:
    """Turns Spark's exceptions into ours. Where the JVM has ended, that is the cause, whatever the exception says."""
    from py4j.protocol import Py4JError, Py4JNetworkError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, OSError) as error:
        ended = session.ended()
        if ended:
            raise ArchiveError(f"{ended}. Nothing is lost: start again, and it goes on") from error
        if isinstance(error, (Py4JNetworkError, ConnectionError)):
            raise ArchiveError(
                f"the connection to Spark's JVM broke ({error}). Nothing is lost: start again, and it goes on"
            ) from error
        if isinstance(error, OSError):
            raise
        raise failures.as_archive_error(str(error)) from error
