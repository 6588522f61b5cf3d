"""A server of a run: started with the settings of the run, asked whether it took them, with a topic for each size."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import msgspec

from blumfeld.bench.drivers.contract import DriverError
from blumfeld.bench.plan.variants import MANIFEST_FILE, VariantSpec
from blumfeld.bench.rebalance.asking import GroupClient
from blumfeld.bench.rebalance.settings import KIP_848, Settings, differences, filled
from blumfeld.bench.running.servers import Server, start_server
from blumfeld.bench.running.usage import Totals, totals
from blumfeld.wire.api_table import ApiKey

HOST = "127.0.0.1"
WARM_UP_SIZE = 40
CLIENT_TIMEOUT_S = 60.0


class UnequalError(Exception):
    """A server has other settings than the run asks for."""


@attrs.frozen
class Topic:
    """What the members of a group read."""

    name: str
    topic_id: bytes
    partitions: int


@attrs.frozen
class Place:
    """A server that is up."""

    port: int
    pids: tuple[int, ...]
    """Its processes; none where somebody else started it."""
    topics: dict[int, Topic]
    """By the size of the group that reads it."""
    protocols: tuple[str, ...]
    """Of those asked for, what it speaks."""
    config: dict[str, str | None]
    """What it said that it goes by."""

    def look(self) -> Totals | None:
        """What it has used so far, where that can be known."""
        return totals(self.pids) if self.pids else None


def configured(spec: VariantSpec, settings: Settings) -> VariantSpec:
    """A foreign variant with the settings in its start command; manifests get theirs when they are parsed."""
    variant = spec.variant
    if variant.kind != "foreign":
        return spec
    command = filled(variant.command, settings.words())
    return attrs.evolve(spec, variant=msgspec.structs.replace(variant, command=command))


@contextmanager
def place_of(spec: VariantSpec, settings: Settings, folder: Path) -> Iterator[Place]:
    """The server, while the block lasts; its data is gone afterwards.

    :raises ServerError: it did not start
    :raises UnequalError: it did not take the settings
    :raises DriverError: it refused a topic, or is not alone
    """
    variant = spec.variant
    if variant.kind == "running":
        yield _set_up(spec, settings, spec.port, None)
        return
    files = {} if variant.manifest is None else {MANIFEST_FILE: variant.manifest}
    server = start_server(variant.label, variant.command, folder, port=spec.port, files=files)
    try:
        yield _set_up(spec, settings, server.port, server)
    finally:
        server.stop()


def _set_up(spec: VariantSpec, settings: Settings, port: int, server: Server | None) -> Place:
    wanted = settings.server()
    with GroupClient(HOST, port, CLIENT_TIMEOUT_S) as client:
        config = client.broker_config(list(wanted))
        if unequal := differences(wanted, config):
            hint = "; a start command takes the settings where it says {settings}"
            raise UnequalError("; ".join(unequal) + (hint if spec.variant.kind == "foreign" else ""))
        topics = {
            size: _topic(client, size, size * settings.partitions_per_member)
            for size in sorted({*settings.sizes, WARM_UP_SIZE})
        }
        speaks = ApiKey.CONSUMER_GROUP_HEARTBEAT in client.versions()
    protocols = tuple(one for one in settings.protocols if speaks or one != KIP_848)
    if not protocols:
        raise DriverError(f"{spec.label} speaks none of {', '.join(settings.protocols)}")
    return Place(port, tuple(server.pids()) if server is not None else (), topics, protocols, config)


def _topic(client: GroupClient, size: int, partitions: int) -> Topic:
    name = f"rebalance-{size}-{time.time_ns():x}"
    client.create_topic(name, partitions)
    client.wait_for_leaders(name)
    return Topic(name, client.topic_id(name), partitions)
