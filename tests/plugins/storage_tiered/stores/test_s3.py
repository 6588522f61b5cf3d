"""The store on S3's protocol, against moto: a mock that speaks it over HTTP. Against a server that is no mock:
``python -m campaigns object-store``."""

from __future__ import annotations

import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.plugins.storage_tiered.restore.lost_cluster import (
    LostCluster,
    await_local_segments,
    checksum,
    consume,
    create,
    produce,
)
from tests.plugins.storage_tiered.stores.s3_tests import (
    BUCKET,
    S3Server,
    S3Tests,
    check_a_consumer_reads_everything,
)

pytest.importorskip("moto", reason="moto isn't installed: make setup")
pytest.importorskip("flask_cors", reason="flask-cors isn't installed: make setup")

PAGE = 20


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    """moto's server in a thread, with short pages."""
    from moto.server import ThreadedMotoServer

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("MOTO_S3_DEFAULT_MAX_KEYS", str(PAGE))
        threaded = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        threaded.start()
        host, port = threaded.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        request = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT", data=b"")
        urllib.request.urlopen(request).close()
        yield S3Server(endpoint, "AKIATEST", "secret")
        threaded.stop()


def test_a_consumer_reads_segments_that_only_the_server_has(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret)
    check_a_consumer_reads_everything(server, "net_asyncio", tmp_path)


def test_a_cluster_whose_disk_is_gone_is_restored_from_the_server(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret)
    s3 = {"endpoint": server.endpoint, "region": "us-east-1"}
    lost = LostCluster(tmp_path, {"store": f"s3://{BUCKET}/lost", "s3": s3})
    values = [b"%d:" % number + bytes(100_000) for number in range(25)]
    with lost.broker() as broker:
        create(broker, "ticks", segment_bytes=str(1 << 20))
        produce(broker, "ticks", values)
        end = await_local_segments(lost.data_dir / "ticks-0")
    lost.lose_disk()
    lost.restore()
    with lost.broker() as broker:
        produce(broker, "ticks", values)
        found = consume(broker, "ticks", 0, end + len(values))
    assert found == [(n, checksum(value)) for n, value in enumerate([*values[:end], *values])]


class TestMoto(S3Tests):
    many_objects = 2 * PAGE + 5

    @pytest.mark.skip(reason="moto takes every key: a real server is asked by the campaign object-store")
    def test_wrong_keys_are_denied(self) -> None:  # type: ignore[override]
        """moto knows no users."""

    def test_an_upload_that_failed_leaves_no_parts_behind(self, server: S3Server) -> None:
        """They would cost, and nobody sees them."""
        for opened in self.open_for("aborted"):

            async def failing() -> AsyncIterator[bytes]:
                for _ in range(3):
                    yield bytes(6 << 20)
                raise RuntimeError("no more")

            with pytest.raises(RuntimeError, match="no more"):
                opened.run(opened.store.put_parts("a", failing()))
        with urllib.request.urlopen(f"{server.endpoint}/{BUCKET}?uploads") as answer:
            assert b"<Upload>" not in answer.read()
