"""``blumfeld run`` as a process: ready, stopped, refused."""

from __future__ import annotations

import re
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from blumfeld.testing.process import free_port
from campaigns.builds import NEVER_LOADED, TELLS_MODULES

READY = re.compile(
    r"blumfeld \S+ ready on PLAINTEXT 127\.0\.0\.1:(\d+) in \d+ ms: net_asyncio \(\S.*?\) \+ storage_local \+ "
    r"consensus_kraft \+ replication_isr \+ groups_classic \+ groups_kip848 \+ transactions; node 1, data in .*\n"
)


class Running:
    """A broker process on a free port."""

    def __init__(
        self, data_dir: Path, *arguments: str, program: tuple[str, ...] = ("-m", "blumfeld.cli.main")
    ) -> None:
        command = [sys.executable, *program, "run", "--data-dir", str(data_dir)]
        self.process = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.ready_line = self.process.stdout.readline()

    @property
    def port(self) -> int:
        match = READY.fullmatch(self.ready_line)
        assert match is not None, self.ready_line + self.stop()[1]
        return int(match[1])

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """(exit status, what it said on stderr)."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=90)
        return self.process.returncode, said


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    broker = Running(tmp_path / "data")
    yield broker
    if broker.process.poll() is None:
        broker.process.kill()
        broker.process.communicate()


def test_a_running_broker_loads_the_plugins_of_its_manifest_and_no_command_line(tmp_path: Path) -> None:
    """What it leaves out costs it neither memory nor a start."""
    settings = (
        'groups.plugins=["groups_classic"]',
        "transactions.plugin=none",
        "storage.plugin=storage_memory",
    )
    words = [word for setting in settings for word in ("--set", setting)]
    broker = Running(tmp_path / "data", *words, program=("-c", TELLS_MODULES))
    assert "ready" in broker.ready_line
    broker.process.send_signal(signal.SIGTERM)
    printed, _ = broker.process.communicate(timeout=90)
    loaded = set(printed.removeprefix("modules: ").split())
    plugins = {name.removeprefix("blumfeld_") for name in loaded if re.fullmatch(r"blumfeld_\w+", name)}
    assert plugins == {
        "consensus_kraft",
        "groups_classic",
        "net_asyncio",
        "replication_isr",
        "storage_memory",
    }
    assert loaded.isdisjoint(NEVER_LOADED)


def asks_api_versions(port: int) -> int:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
        size: int = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))[0]
        return size


def one_line(said: str) -> str:
    assert said.count("\n") == 1, said
    assert said.startswith("blumfeld: ")
    return said.removeprefix("blumfeld: ").rstrip("\n")


def refused(*arguments: str) -> tuple[int, str]:
    """(exit status, the one line) of a run that ends by itself."""
    command = [sys.executable, "-m", "blumfeld.cli.main", "run", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.stdout == ""
    return done.returncode, one_line(done.stderr)


def test_the_ready_line_says_where_and_a_client_is_answered(running: Running) -> None:
    assert asks_api_versions(running.port) > 50


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_the_next_start_is_the_same_cluster_whatever_the_end(
    running: Running, tmp_path: Path, number: int
) -> None:
    """SIGTERM and SIGINT are a clean end without a word."""
    data = tmp_path / "data"
    before = (data / "meta.properties").read_text()
    assert running.port > 0
    cleanly = number != signal.SIGKILL
    assert running.stop(number) == ((0, "") if cleanly else (-signal.SIGKILL, ""))
    assert (data / ".kafka_cleanshutdown").exists() == cleanly
    again = Running(data)
    assert asks_api_versions(again.port) > 50
    assert again.stop() == (0, "")
    assert (data / "meta.properties").read_text() == before


def test_a_directory_in_use_is_refused(running: Running, tmp_path: Path) -> None:
    status, line = refused("--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    assert status == 1
    assert line.startswith("could not start: storage: ")
    assert "another process holds the lock" in line
    assert asks_api_versions(running.port) > 50


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, line = refused("--data-dir", str(tmp_path / "data"), "--listen", f"127.0.0.1:{port}")
    assert status == 1
    assert line == (
        f"could not start: network: listener PLAINTEXT cannot listen on 127.0.0.1:{port}: Address already in use"
    )


def test_a_path_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    status, line = refused("--data-dir", str(tmp_path / "file" / "data"), "--listen", "127.0.0.1:0")
    assert status == 1
    assert line.startswith("could not start: storage: ")
    assert line.endswith("Not a directory")


def test_a_directory_of_another_node_or_cluster_is_refused_for_good(running: Running, tmp_path: Path) -> None:
    running.stop()
    data = str(tmp_path / "data")
    for wrong, said in (
        ("node.id=2", "of node 1, not 2 (node.id)"),
        ("node.cluster_id=x", ", not x (node.cluster_id)"),
    ):
        status, line = refused("--data-dir", data, "--listen", "127.0.0.1:0", "--set", wrong)
        assert status == 2, "a supervisor must not start it again"
        assert said in line


def test_the_health_port_is_there_when_it_is_asked_for(tmp_path: Path) -> None:
    port = free_port()
    broker = Running(tmp_path / "data", "--set", f"metrics.bind=127.0.0.1:{port}")
    assert asks_api_versions(broker.port) > 50
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert b'blumfeld_requests_total{api="ApiVersions"} 1.0' in answer
    assert b'blumfeld_connections_accepted_total{listener="PLAINTEXT"} 1.0' in answer
    assert b"blumfeld_parked_requests 0.0" in answer
    assert broker.stop()[0] == 0
