"""The store against SeaweedFS, an S3 server that is no mock. ``python -m campaigns object-store`` runs this."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from blumfeld.spi.object_store import StoreDeniedError
from blumfeld_kit.fakes.real_time import RealTimeRuntime
from blumfeld_storage_tiered.stores.checking import check_store
from blumfeld_storage_tiered.stores.opening import open_store
from campaigns.object_store.seaweedfs import INSTALL, Server, seaweedfs, weed
from tests.plugins.net_uring.ring_tools import needs_ring
from tests.plugins.storage_tiered.stores.s3_tests import (
    BUCKET,
    S3Server,
    S3Tests,
    check_a_consumer_reads_everything,
)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(weed() is None, reason=f"no S3 server: {INSTALL}")]


@pytest.fixture(scope="module")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real server on this machine."""
    with seaweedfs(tmp_path_factory.mktemp("seaweedfs"), BUCKET) as server:
        yield server


@pytest.fixture(scope="module")
def server(seaweed: Server) -> S3Server:
    """The same, as the tests want it."""
    return S3Server(seaweed.endpoint, seaweed.key, seaweed.secret)


@pytest.mark.parametrize("network", ["net_asyncio", pytest.param("net_uring", marks=needs_ring)])
def test_a_consumer_reads_segments_that_only_the_server_has(
    server: S3Server, network: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret)
    check_a_consumer_reads_everything(server, network, tmp_path)


class TestSeaweedFS(S3Tests):
    def test_a_bucket_that_is_not_there_is_named(self, runtime: RealTimeRuntime) -> None:
        """A server may hide from strangers which buckets there are: it denies."""
        store = open_store("s3://no-such-bucket/x", runtime, self.server.options, {})
        with pytest.raises(StoreDeniedError, match=r"s3://no-such-bucket/x.* can't be written"):
            runtime.run(check_store(runtime, store, "one", '"s3://no-such-bucket/x"'))

    def test_keys_that_may_only_read_are_told_what_they_lack(
        self, seaweed: Server, runtime: RealTimeRuntime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The check says which step was refused."""
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", seaweed.reader_key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", seaweed.reader_secret)
        store = self.make_store(runtime, "readonly")
        with pytest.raises(StoreDeniedError, match=r"can't be written: found .*AccessDenied"):
            runtime.run(check_store(runtime, store, "one", "x"))
