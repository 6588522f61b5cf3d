"""One node of the register: an acceptor that obeys the newest leader, and sometimes that leader.

Correct without a planted bug: a leader is elected by a majority under an epoch of its own, every promise and every
value is synced before it is answered, and a read asks a majority whether the reader still leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from blumfeld.spi.hooks import Composition
from blumfeld.spi.observing import RequestSeen
from blumfeld.spi.transport import Connection, Exchange, Limits, Listener
from tests.kit.simulation.register.disk import Accepted, AcceptedFile
from tests.kit.simulation.register.peers import Message, Peer

PORT = 7000
HEARTBEAT_S = 0.3
ELECTION_S = 1.0
"""A node that hears nothing for this long, and for up to as long again, stands for election."""

ACK_BEFORE_SYNC = "ack-before-sync"
NO_EPOCH = "no-epoch"
STALE_READ = "stale-read"
BUGS = (ACK_BEFORE_SYNC, NO_EPOCH, STALE_READ)


class RegisterNode:
    """An ``Observer`` of a broker that observes nothing: it serves the register on a port of its own."""

    def __init__(self, composition: Composition, nodes: Sequence[str], bug: str) -> None:
        self._composition = composition
        self._runtime = composition.runtime
        self._bug = bug
        self._own = composition.listeners[0].host
        self._others = [Peer(composition.transport, host, PORT) for host in nodes if host != self._own]
        self._number = list(nodes).index(self._own)
        self._nodes = len(nodes)
        self._file = AcceptedFile(self._runtime, f"{composition.data_dir}/register")
        self._state = Accepted()
        self._accepting = asyncio.Lock()
        self._leading = asyncio.Lock()
        self._epoch = 0
        """The epoch in which this node leads; 0: it doesn't."""
        self._version = 0
        self._committed: str | None = None
        self._heard_ms = 0.0
        self._stopped = False

    async def start(self) -> None:
        """Read the state, then serve."""
        self._state = await self._file.open()
        self._heard_ms = self._runtime.monotonic_ms()
        listener = Listener(name="REGISTER", kind="broker", host=self._own, port=PORT)
        await self._composition.transport.listen(listener, self, Limits())
        self._runtime.spawn(self._stand(), "register")

    def requests(self, seen: Sequence[RequestSeen]) -> None:
        """Observe nothing."""

    async def stop(self) -> None:
        """Lead no more."""
        self._stopped = True

    # Questions

    def opened(self, connection: Connection) -> None:
        """Do nothing."""

    def closed(self, connection: Connection, reason: str) -> None:
        """Do nothing."""

    def request(self, exchange: Exchange, frame: memoryview) -> None:
        """Answer one question."""
        message: Message = msgspec.json.decode(bytes(frame))
        exchange.let_next_start()
        self._runtime.spawn(self._serve(exchange, message), "register question")

    async def _serve(self, exchange: Exchange, message: Message) -> None:
        kind = message["kind"]
        if kind in ("read", "write"):
            answer = await self._client(message)
        else:
            answer = await self._accept(message)
        if answer is None:
            exchange.connection.abort("the outcome is not known")
            exchange.no_answer()
        else:
            exchange.answer([msgspec.json.encode({**answer, "number": message["number"]})])

    # The acceptor

    async def _accept(self, message: Message) -> Message:
        async with self._accepting:
            state, epoch, kind = self._state, message["epoch"], message["kind"]
            obeys = epoch > state.promised if kind == "promise" else epoch >= state.promised
            if self._bug == NO_EPOCH and kind != "promise":
                obeys = True
            if not obeys:
                return {"ok": False, "promised": state.promised}
            self._heard_ms = self._runtime.monotonic_ms()
            if epoch != self._epoch and kind == "promise":
                self._epoch = 0
            new = msgspec.structs.replace(state, promised=max(epoch, state.promised))
            if kind == "accept":
                new = msgspec.structs.replace(
                    new, epoch=epoch, version=message["version"], value=message["value"]
                )
            if new != state:
                try:
                    await self._file.write(new, sync=self._bug != ACK_BEFORE_SYNC)
                except OSError:
                    return {"ok": False, "promised": state.promised}
                self._state = new
            return {"ok": True, "epoch": state.epoch, "version": state.version, "value": state.value}

    async def _majority(self, question: Message) -> list[Message] | None:
        """Ask every node, this one too. Return the answers of a majority that obeys, or ``None``."""
        found = await asyncio.gather(self._accept(question), *(peer.ask(question) for peer in self._others))
        answers: list[Message] = [one for one in found if one is not None and one["ok"]]
        return answers if 2 * len(answers) > self._nodes else None

    # The leader

    async def _stand(self) -> None:
        while not self._stopped:
            await asyncio.sleep(HEARTBEAT_S)
            silent_ms = self._runtime.monotonic_ms() - self._heard_ms
            if self._epoch:
                if await self._majority({"kind": "confirm", "epoch": self._epoch}) is None:
                    self._epoch = 0
            elif silent_ms > ELECTION_S * 1000 * (1 + self._runtime.random.random()):
                await self._elect()

    async def _elect(self) -> None:
        epoch = self._state.promised + 1
        epoch += (self._number - epoch) % self._nodes
        async with self._leading:
            promises = await self._majority({"kind": "promise", "epoch": epoch})
            if promises is None:
                return
            newest = max(promises, key=lambda one: (one["epoch"], one["version"]))
            if newest["version"] and not await self._replicate(epoch, newest["version"], newest["value"]):
                return
            self._version, self._committed, self._epoch = newest["version"], newest["value"], epoch

    async def _replicate(self, epoch: int, version: int, value: Any) -> bool:
        question = {"kind": "accept", "epoch": epoch, "version": version, "value": value}
        return await self._majority(question) is not None

    async def _client(self, message: Message) -> Message | None:
        """Return the answer to a client; ``None`` if the outcome of its write is not known."""
        async with self._leading:
            epoch = self._epoch
            if not epoch:
                return {"ok": False}
            if message["kind"] == "write":
                self._version += 1
                if not await self._replicate(epoch, self._version, message["value"]):
                    self._epoch = 0
                    return None
                self._committed = message["value"]
                return {"ok": True}
            confirm = {"kind": "confirm", "epoch": epoch}
            if self._bug != STALE_READ and await self._majority(confirm) is None:
                self._epoch = 0
                return {"ok": False}
            return {"ok": True, "value": self._committed}
