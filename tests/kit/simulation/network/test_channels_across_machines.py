"""A channel from one simulated machine to another: the same code as over the real transports."""

from __future__ import annotations

from typing import Any

import pytest

from blumfeld.client.channel import Channel, ChannelSettings
from blumfeld.spi.cluster import Endpoint
from blumfeld.spi.completion import Completion
from blumfeld.wire.codec import decode
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataResponse
from blumfeld_kit.simulation.machine.host import ADDRESS, address_of
from tests.kit.simulation.machine.test_machine import Several

TIMEOUT_MS = 2_000


def channel_of(several: Several) -> Channel:
    """A channel of the first machine to the broker of the second."""
    runtime = several.machines[0]._runtime
    assert runtime is not None
    return Channel(
        runtime,
        several.transport(0),
        lambda: Endpoint("PLAINTEXT", address_of(2), ADDRESS[1]),
        "metadata at node 2",
        ChannelSettings(client_id="broker-1", connect_timeout_ms=1_000),
    )


def test_a_channel_lives_through_a_power_cut_of_the_other_machine() -> None:
    several = Several()

    async def story() -> None:
        channel = channel_of(several)

        async def ask() -> Any:
            return await channel.send(MetadataRequest(topics=[]), TIMEOUT_MS)

        answer = await several.machines[0].run(ask())
        assert isinstance(answer, MetadataResponse)
        assert [broker.node_id for broker in answer.brokers] == [2]
        several.machines[1].crash(power_cut=True)
        with pytest.raises(TimeoutError):
            await several.machines[0].run(ask())  # nothing says that the machine is gone
        with pytest.raises(OSError, match="no connection in time"):
            await several.machines[0].run(ask())
        assert await several.machines[1].start()
        while True:
            try:
                answer = await several.machines[0].run(ask())
                break
            except OSError:
                continue
        assert [broker.node_id for broker in answer.brokers] == [2]
        channel.stop()

    several.run(story())


def test_a_raw_answer_is_garbage_after_its_turn() -> None:
    several = Several()

    async def story() -> None:
        channel = channel_of(several)
        seen: list[memoryview] = []
        copies: list[tuple[bytes, int]] = []

        def take(done: Completion[Any]) -> None:
            raw = done.result()
            seen.append(raw.body)
            copies.append((bytes(raw.body), raw.version))

        async def ask() -> None:
            completion = channel.send_raw(MetadataRequest(topics=[]), TIMEOUT_MS)
            completion.when_done(take)
            await completion

        await several.machines[0].run(ask())
        assert [broker.node_id for broker in decode(MetadataResponse, *copies[0]).brokers] == [2]
        assert set(bytes(seen[0])) == {0xDD}
        channel.stop()

    several.run(story())
