"""A broker whose logs may be tiered, over storage in memory and a store that a test commands."""

from __future__ import annotations

from typing import Any, cast

from blumfeld.spi.cluster import TOPIC_RESOURCE, ImageDelta
from blumfeld.spi.storage import TopicPartition
from blumfeld_kit.fakes.tiered_storage import FakeTieredLog, FakeTieredStorage, RemoteStore, tiered_log
from blumfeld_storage_memory.storage import MemoryStorage
from tests.broker.batches import batch, produce
from tests.broker.harness import BrokerHarness

AT = TopicPartition("t", 0)
TIERED = {"remote.storage.enable": "true", "internal.segment.bytes": "200"}


class TieredBroker(BrokerHarness):
    """With a topic ``t`` of one partition."""

    def __init__(self, configs: dict[str, str] | None = None, **options: Any) -> None:
        self.store: RemoteStore = options.pop("store", None) or RemoteStore()
        options.setdefault(
            "make_storage", lambda runtime: FakeTieredStorage(MemoryStorage(runtime), runtime, self.store)
        )
        super().__init__(**options)
        if AT.topic not in self.metadata.image.topics and configs is not None:
            self.metadata.create_topic("t", 1, configs)
            self.runtime.run_turn()

    @property
    def tiering(self) -> FakeTieredStorage:
        return cast("FakeTieredStorage", self.composition.storage)

    @property
    def log_now(self) -> FakeTieredLog:
        return tiered_log(self.hosted().log)

    def configure(self, configs: dict[str, str], *, turn: bool = True) -> None:
        self.metadata.image.configs[TOPIC_RESOURCE, "t"] = configs
        self.metadata.tell(ImageDelta(configs_changed=((TOPIC_RESOURCE, "t"),)))
        if turn:
            self.runtime.run_turn()

    def append(self, count: int = 1, **options: Any) -> None:
        """Batches, each of which fills a segment with the one before."""
        for _ in range(count):
            answer = self.ask(produce(batch(b"v" * 40, **options)), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0

    def moved_away(self, local_start: int) -> None:
        """Copy all sealed segments, and drop those below ``local_start`` from the local disk."""
        self.log_now.copy()
        self.log_now.drop_segments(local_start)
        self.hosted().log_start_moved()

    def reopened(self) -> TieredBroker:
        """The same logs and the same store under a new broker."""
        if not self.broker.partitions.stopped:
            self.stop()
        storage = self.composition.storage
        again = TieredBroker(make_storage=lambda runtime: storage, store=self.store, start=False)
        again.tiering.runtime = again.runtime
        again.metadata.image = self.metadata.image
        again.start()
        return again
