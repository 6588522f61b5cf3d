"""What every S3 server is tried with: the contract of a store, and segments through all rooms."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from blumfeld.spi.object_store import ObjectStore, StoreDeniedError, StoreMisconfiguredError
from blumfeld.testing import EmbeddedBroker
from blumfeld_kit import ObjectStoreContract
from blumfeld_kit.fakes.real_time import RealTimeRuntime
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_storage_tiered.objects.names import SegmentFile
from blumfeld_storage_tiered.objects.segments import SegmentObjects
from blumfeld_storage_tiered.objects.upload import SegmentUpload
from blumfeld_storage_tiered.stores.checking import MARKER, check_store
from blumfeld_storage_tiered.stores.opening import open_store
from blumfeld_storage_tiered.stores.options import RequestOptions, S3Options, StoreOptions
from tests.plugins.storage_tiered.segments import LOG, collect, segment

BUCKET = "blumfeld-tests"


class S3Server:
    """A server on this machine, with a bucket and keys that may do everything there."""

    def __init__(self, endpoint: str, key: str, secret: str) -> None:
        self.endpoint = endpoint
        self.key = key
        self.secret = secret

    @property
    def options(self) -> StoreOptions:
        """The options of a store on it."""
        return StoreOptions(
            s3=S3Options(endpoint=self.endpoint, region="us-east-1"),
            requests=RequestOptions(request_timeout_ms=10_000, retry_timeout_ms=5_000),
        )


async def unpaced(size: int) -> None:
    """Let everything through."""


class S3Tests(ObjectStoreContract):
    """The contract on an S3 server that the fixture ``server`` gives."""

    lasts = True

    @pytest.fixture(autouse=True)
    def _server(self, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = server
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret)
        monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)

    def make_store(self, runtime: FakeRuntime | RealTimeRuntime, name: str) -> ObjectStore:
        return open_store(f"s3://{BUCKET}/{name}", runtime, self.server.options, {})

    @pytest.fixture
    def runtime(self) -> Iterator[RealTimeRuntime]:
        """A runtime on asyncio's loop."""
        runtime = RealTimeRuntime()
        yield runtime
        runtime.end()

    def test_a_cluster_claims_a_prefix_and_another_is_refused(self, runtime: RealTimeRuntime) -> None:
        """The marker is put under a condition that this server keeps."""
        store = self.make_store(runtime, "claimed")
        for _ in range(2):
            runtime.run(check_store(runtime, store, "one", "x"))
        assert [info.key for info in runtime.run(collect(store.list("")))] == [MARKER]
        with pytest.raises(StoreMisconfiguredError, match="found cluster id one; allowed: two"):
            runtime.run(check_store(runtime, store, "two", "x"))

    def test_a_bucket_that_is_not_there_is_named(self, runtime: RealTimeRuntime) -> None:
        """The check tells it from an object that isn't there."""
        store = open_store("s3://no-such-bucket/x", runtime, self.server.options, {})
        with pytest.raises(StoreMisconfiguredError, match=r"no-such-bucket.*the bucket must exist"):
            runtime.run(check_store(runtime, store, "one", '"s3://no-such-bucket/x"'))

    def test_wrong_keys_are_denied(self, runtime: RealTimeRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
        """A server that knows its users refuses others."""
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret")
        store = self.make_store(runtime, "denied")
        with pytest.raises(StoreDeniedError, match=r"can't be written: found .*status 403"):
            runtime.run(check_store(runtime, store, "one", "x"))

    def test_a_segment_is_uploaded_verified_read_and_deleted(
        self, runtime: RealTimeRuntime, tmp_path: Path
    ) -> None:
        """A log of several parts, through all rooms."""
        store = self.make_store(runtime, "segments")
        log = LOG * 1200  # 11 MiB, so that it is a multipart upload
        sources: dict[SegmentFile, str | bytes] = {kind: kind.value.encode() for kind in SegmentFile}
        (tmp_path / "log").write_bytes(log)
        sources[SegmentFile.LOG] = str(tmp_path / "log")
        uploads = SegmentUpload(runtime, store, "one", verify="read")
        done = segment(size=len(log))
        done = msgspec.structs.replace(
            done, custom_metadata=runtime.run(uploads.upload(done, sources, unpaced))
        )
        segments = SegmentObjects(runtime, store)
        assert runtime.run(segments.verify(done)) == []
        assert runtime.run(segments.read_range(done, 1 << 20, 3 << 20)) == log[1 << 20 : 4 << 20]
        (stored,) = runtime.run(collect(segments.list_segments()))
        assert stored.is_whole
        runtime.run(segments.delete(stored.name))
        assert runtime.run(collect(store.list(""))) == []


def check_a_consumer_reads_everything(server: S3Server, network: str, folder: Path) -> None:
    """A broker whose old segments lie in the server alone gives a consumer all of them, each record once.

    :param network: the transport, and so the loop that obstore wakes up
    """
    options = {
        "store": f"s3://{BUCKET}/{network}",
        "s3": {"endpoint": server.endpoint, "region": "us-east-1"},
    }
    config = {"remote.log.manager.task.interval.ms": 100, "log.retention.check.interval.ms": 200}
    config["log.initial.task.delay.ms"] = 100
    topic = {"remote.storage.enable": "true", "segment.bytes": str(1 << 20), "local.retention.bytes": "1"}
    values = [b"%d:" % n + bytes(200_000) for n in range(30)]
    with EmbeddedBroker(
        storage="storage_tiered",
        storage_options=options,
        config=config,
        data_dir=str(folder),
        manifest={"network": {"plugin": network}},
    ) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        (made,) = admin.create_topics([NewTopic("ticks", 1, 1, config=topic)]).values()
        made.result(20)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for value in values:
            producer.produce("ticks", value)
            assert producer.flush(20) == 0
        deadline = time.monotonic() + 60
        while len(list((folder / "ticks-0").glob("*.log"))) > 1:
            assert time.monotonic() < deadline, sorted((folder / "ticks-0").iterdir())
            time.sleep(0.05)
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["ticks"])
        consumed: list[bytes | None] = []
        while len(consumed) < len(values):
            message = consumer.poll(30)
            assert message is not None, len(consumed)
            assert message.error() is None, message.error()
            consumed.append(message.value())
        consumer.close()
    assert consumed == values
