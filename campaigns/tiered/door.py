"""A store that can be taken away: an S3 server in a process, and a door before it that is open, shut or mute."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from blumfeld.testing.process import free_port
from campaigns.waits import await_true

HOST = "127.0.0.1"
START_S = 60.0
BYTES = 1 << 16


class Way(Enum):
    """How a door meets a client."""

    OPEN = "open"
    SHUT = "refuses connections"
    MUTE = "takes connections, and says nothing"


class Door:
    """A port that leads to the store. It runs in a thread."""

    def __init__(self, target_port: int) -> None:
        self.port = free_port()
        self._target_port = target_port
        self._way = Way.OPEN
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="door", daemon=True)
        self._thread.start()
        self._run(self._listen())

    def set(self, way: Way) -> None:
        """Meet clients so from now on. Connections that are open end."""
        self._run(self._turn(way))

    def close(self) -> None:
        """End the thread."""
        self.set(Way.SHUT)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, self.port)

    async def _turn(self, way: Way) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()
        self._way = way
        if way is not Way.SHUT:
            await self._listen()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if self._way is Way.MUTE:
                while await reader.read(BYTES):
                    pass
                return
            with suppress(OSError):
                there, back = await asyncio.open_connection(HOST, self._target_port)
                self._writers.add(back)
                await asyncio.gather(_pump(reader, back), _pump(there, writer))
                self._writers.discard(back)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(BYTES):
            sink.write(data)
            await sink.drain()
    finally:
        sink.close()


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
            door = Door(port)
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
