"""TLS to a real server: its certificate is checked, and many requests are under way at once."""

from __future__ import annotations

import gc
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from blumfeld.spi.zookeeper import Create, ZooKeeper
from blumfeld_consensus_zk_compat.zookeeper import Access, Tls, open_session
from blumfeld_kit.fakes.real_time import RealTimeRuntime
from campaigns.zookeeper_server import JARS_VARIABLE, ZooKeeperServer, jars_folder

pytestmark = pytest.mark.slow


class Secured:
    """A server that speaks TLS only, and its files."""

    def __init__(self, folder: Path) -> None:
        self.certificate, self.key = folder / "certificate.pem", folder / "key.pem"
        subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
        files = ["-keyout", str(self.key), "-out", str(self.certificate)]
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, *files],
            check=True,
            capture_output=True,
        )
        both = folder / "both.pem"
        both.write_text(self.certificate.read_text() + self.key.read_text())
        self.server = ZooKeeperServer(
            folder / "zookeeper",
            {
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "ssl.keyStore.location": both,
                "ssl.keyStore.type": "PEM",
                "ssl.trustStore.location": self.certificate,
                "ssl.trustStore.type": "PEM",
                "ssl.clientAuth": "none",
            },
        )


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    """A server that speaks TLS only."""
    jars = jars_folder()
    if jars is None or not list(jars.glob("netty*handler*.jar")) or shutil.which("openssl") is None:
        pytest.skip(f"needs openssl, and {JARS_VARIABLE} with the jars of ZooKeeper and of Netty")
    secured = Secured(tmp_path)
    secured.server.launch()
    yield secured
    secured.server.kill()


def test_tls_checks_the_server_and_answers_pipelined_requests(secured: Secured) -> None:
    runtime, made = RealTimeRuntime(), []

    def session(tls: Tls | None, host: str = "localhost") -> ZooKeeper:
        servers = f"{host}:{secured.server.port}"
        made.append(open_session(runtime, Access(servers=servers, session_timeout_ms=10_000, tls=tls)))
        return made[-1]

    async def play() -> None:
        ca_file = str(secured.certificate)
        zk = session(Tls(ca_file=ca_file))
        await zk.connect(60_000)
        await zk.multi([Create(f"/{number}", b"x" * 500) for number in range(1_000)])
        reads = [zk.get(f"/{number}") for number in range(1_000)]
        assert len((await reads[-1]).data) == 500
        for tls, host, problem in (
            (Tls(), "localhost", "CERTIFICATE_VERIFY_FAILED"),
            (Tls(ca_file=ca_file), "127.0.0.1", "CERTIFICATE_VERIFY_FAILED"),
            (None, "localhost", "dropped"),
        ):
            with pytest.raises(TimeoutError, match=problem):
                await session(tls, host).connect(3_000)
        await session(Tls(ca_file=ca_file, verify_host=False), "127.0.0.1").connect(10_000)
        for each in made:
            await each.close()

    with warnings.catch_warnings():
        # kazoo leaves the sockets of refused handshakes to the collector.
        warnings.simplefilter("ignore", ResourceWarning)
        runtime.run(play())
        runtime.end()
        gc.collect()
