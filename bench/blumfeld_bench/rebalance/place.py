"""A server of a run: started with the run's settings, which are read back, with a topic for each group size."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import msgspec

from blumfeld.wire.api_table import ApiKey
from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.drivers.wire_client import WireClient
from blumfeld_bench.plan.variants import MANIFEST_FILE, VariantSpec
from blumfeld_bench.rebalance.settings import KIP_848, Settings, differences, filled
from blumfeld_bench.running.servers import Server, start_server
from blumfeld_bench.usage import Totals, totals

HOST = "127.0.0.1"
WARM_UP_SIZE = 40
CLIENT_TIMEOUT_S = 60.0


class UnequalError(Exception):
    """A server has other settings than the run asks for."""


@attrs.frozen
class Topic:
    """A topic that the members of a group read."""

    name: str
    topic_id: bytes
    partitions: int


@attrs.frozen
class Place:
    """A running server."""

    port: int
    pids: tuple[int, ...]
    """Ids of its processes; empty for a server that the bench did not start."""
    topics: dict[int, Topic]
    """Topics by the size of the group that reads them."""
    protocols: tuple[str, ...]
    """The requested protocols that the server speaks."""
    config: dict[str, str | None]
    """The settings that the server reported."""

    def look(self) -> Totals | None:
        """Return the server's usage so far, or None where that can't be known."""
        return totals(self.pids) if self.pids else None


def configured(spec: VariantSpec, settings: Settings) -> VariantSpec:
    """Put the settings into a foreign variant's start command. Manifests get theirs when they are parsed."""
    variant = spec.variant
    if variant.kind != "foreign":
        return spec
    command = filled(variant.command, settings.words())
    return attrs.evolve(spec, variant=msgspec.structs.replace(variant, command=command))


@contextmanager
def place_of(spec: VariantSpec, settings: Settings, folder: Path) -> Iterator[Place]:
    """Yield the running server; stop it and remove its data afterwards.

    :raises ServerError: the server did not start
    :raises UnequalError: the server did not take the settings
    :raises DriverError: the server refused a topic, or its cluster has other brokers
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
    with WireClient(HOST, port, CLIENT_TIMEOUT_S) as client:
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
        raise DriverError(f"{spec.label} speaks none of the asked protocols: {', '.join(settings.protocols)}")
    return Place(port, tuple(server.pids()) if server is not None else (), topics, protocols, config)


def _topic(client: WireClient, size: int, partitions: int) -> Topic:
    name = f"rebalance-{size}-{time.time_ns():x}"
    client.create_topic(name, partitions)
    client.wait_for_leaders(name)
    return Topic(name, client.topic_id(name), partitions)
