"""A store that can be taken away: an S3 server in a process, and a door before it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

from blumfeld.testing.process import free_port
from campaigns.door import HOST, Door
from campaigns.waits import await_true

START_S = 60.0


@contextmanager
def s3_behind_a_door(folder: Path, bucket: str) -> Iterator[Door]:
    """Run moto's server with an empty bucket, and a door to it, until the block ends.

    :raises OSError: the server didn't answer in time
    """
    port = free_port()
    program = Path(sys.executable).with_name("moto_server")
    with (folder / "moto.log").open("wb") as log:
        command = [str(program), "-H", HOST, "-p", str(port)]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            url = f"http://{HOST}:{port}/{bucket}"
            if not await_true(lambda: process.poll() is None and _made(url), START_S, 0.2):
                raise OSError(f"moto_server doesn't answer; see {folder / 'moto.log'}")
            door = Door([(HOST, port)])
            try:
                yield door
            finally:
                door.close()
        finally:
            process.kill()
            process.wait()


def _made(url: str) -> bool:
    try:
        with urlopen(Request(url, method="PUT", data=b""), timeout=5) as answer:
            return bool(answer.status < 300)
    except OSError:
        return False
