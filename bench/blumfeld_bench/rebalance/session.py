"""A whole run: fresh servers with equal settings, in turns, each with all its cells.

A failure is recorded and the run goes on.
"""

from __future__ import annotations

import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import attrs
import msgspec

from blumfeld import __version__
from blumfeld.client.security.command_config import ClientSecurity, CommandConfigError
from blumfeld.wire.api_table import ApiKey
from blumfeld_bench.drivers.connections import raise_descriptor_limit
from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.drivers.wire_client import WireClient
from blumfeld_bench.plan.schedule import Turn, turns_of
from blumfeld_bench.plan.variants import VariantSpec
from blumfeld_bench.rebalance.cell import Cell
from blumfeld_bench.rebalance.members.crowd import Crowd, undisturbed
from blumfeld_bench.rebalance.members.member import Group
from blumfeld_bench.rebalance.members.ownership import Ownership
from blumfeld_bench.rebalance.result import Failure, RebalanceResult, Sample
from blumfeld_bench.rebalance.settings import KIP_848, Settings, differences, filled
from blumfeld_bench.runs.machine import this_machine
from blumfeld_bench.runs.servers import Server, ServerCluster, ServerError, started
from blumfeld_bench.security import security_at
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
    security: ClientSecurity
    """How a client logs in."""

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
    with started(spec, folder) as server:
        yield _set_up(spec, settings, spec.port if server is None else server.port, server)


def _set_up(spec: VariantSpec, settings: Settings, port: int, server: Server | ServerCluster | None) -> Place:
    wanted = settings.server()
    security = security_at(spec.variant.command_config)
    with WireClient(HOST, port, CLIENT_TIMEOUT_S, security) as client:
        config = client.broker_config(list(wanted))
        if unequal := differences(wanted, config):
            hint = "; a start command takes the settings where it says {settings}"
            raise UnequalError("; ".join(unequal) + (hint if spec.variant.kind == "foreign" else ""))
        topics = {
            size: _topic(client, size, size * settings.partitions_per_member)
            for size in sorted({*settings.sizes, WARM_UP_SIZE})
        }
        speaks = ApiKey.CONSUMER_GROUP_HEARTBEAT in client.versions()
    protocols = tuple(protocol for protocol in settings.protocols if speaks or protocol != KIP_848)
    if not protocols:
        raise DriverError(f"{spec.label} speaks none of the asked protocols: {', '.join(settings.protocols)}")
    return Place(
        port, tuple(server.pids()) if server is not None else (), topics, protocols, config, security
    )


def _topic(client: WireClient, size: int, partitions: int) -> Topic:
    name = f"rebalance-{size}-{time.time_ns():x}"
    client.create_topic(name, partitions)
    client.wait_for_leaders(name)
    return Topic(name, client.topic_id(name), partitions)


EXPECTED = (CommandConfigError, DriverError, ServerError, UnequalError, OSError, subprocess.SubprocessError)
Tell = Callable[[str], None]


class Session:
    """The state of one run.

    :param tell: called with a line about the progress now and then
    :param driver_first: run the driver before the server's threads (SCHED_RR), where that is allowed
    """

    def __init__(
        self,
        specs: Sequence[VariantSpec],
        settings: Settings,
        rounds: int,
        folder: Path | None,
        tell: Tell,
        *,
        driver_first: bool = False,
    ) -> None:
        self._driver_first = driver_first
        self._specs = [configured(spec, settings) for spec in specs]
        self._settings = settings
        self._rounds = rounds
        self._folder = folder
        self._tell = tell
        self._configs: dict[str, dict[str, str | None]] = {}
        self._samples: list[Sample] = []
        self._failures: list[Failure] = []

    def run(self) -> RebalanceResult:
        """Run all rounds. Ctrl-C ends the run and keeps what was measured."""
        raise_descriptor_limit()
        machine, created = this_machine(), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        began, interrupted = time.monotonic(), True
        with (
            tempfile.TemporaryDirectory(prefix="blumfeld-rebalance-", dir=self._folder) as folder,
            suppress(KeyboardInterrupt),
        ):
            for turn in turns_of([spec.label for spec in self._specs], self._rounds):
                self._turn(turn, Path(folder) / f"{turn.position:03}")
            interrupted = False
        return RebalanceResult(
            experiment="rebalance",
            blumfeld=__version__,
            created=created,
            machine=machine,
            settings=self._settings,
            rounds=self._rounds,
            driver_first=self._driver_first,
            variants=tuple(spec.variant for spec in self._specs),
            configs=self._configs,
            samples=tuple(self._samples),
            failures=tuple(self._failures),
            interrupted=interrupted,
            seconds=round(time.monotonic() - began, 1),
        )

    def _turn(self, turn: Turn, folder: Path) -> None:
        spec = next(spec for spec in self._specs if spec.label == turn.variant)
        try:
            with place_of(spec, self._settings, folder) as place:
                self._configs[turn.variant] = place.config
                self._warm_up(place, turn, spec.variant.warm_up_s)
                for size in self._settings.sizes:
                    for protocol in place.protocols:
                        self._try(place, turn, protocol, size)
        except EXPECTED as error:
            self._failed(turn, "server", error)

    def _warm_up(self, place: Place, turn: Turn, warm_up_s: float) -> None:
        """Run small groups of each protocol until the warm-up time is over. Servers that compile or import code as they
        run need it.
        """
        began, number = time.monotonic(), 0
        while not number or time.monotonic() - began < warm_up_s:
            for protocol in place.protocols:
                with undisturbed(first=self._driver_first):
                    self._warm_up_once(place, protocol, f"warm-up-{number}-{protocol}")
            number += 1
        self._tell(f"round {turn.round + 1} {turn.variant}: warm after {time.monotonic() - began:.0f} s")

    def _warm_up_once(self, place: Place, protocol: str, group_id: str) -> None:
        crowd = Crowd(HOST, place.port, place.security)
        try:
            cell = Cell(
                crowd, self._group(place, group_id, WARM_UP_SIZE, 0), protocol, self._settings, place.look
            )
            cell.form(WARM_UP_SIZE)
        finally:
            crowd.close()

    def _try(self, place: Place, turn: Turn, protocol: str, size: int) -> None:
        crowd = Crowd(HOST, place.port, place.security)
        where = f"{protocol}, {size} members"
        try:
            group = self._group(place, f"{protocol}-{size}", size, turn.round)
            cell = Cell(crowd, group, protocol, self._settings, place.look)
            with undisturbed(first=self._driver_first):
                formed_s = cell.form(size)
                scenarios = self._settings.scenarios_of(size)
                samples = cell.run(turn.variant, turn.round, size, scenarios)
            self._samples += samples
            said = ", ".join(f"{sample.scenario} {sample.stable_s:.2f}" for sample in samples)
            self._tell(
                f"round {turn.round + 1} {turn.variant} {where}: stable after s: formed {formed_s:.2f}, {said}"
            )
        except DriverError as error:
            self._failed(turn, where, error)
        finally:
            crowd.close()

    def _group(self, place: Place, group_id: str, size: int, round_number: int) -> Group:
        """Return a new group on that size's topic, with a coordinator. Random draws differ between rounds, not between
        servers.
        """
        with WireClient(HOST, place.port, security=place.security) as client:
            client.await_coordinator(group_id)
        topic, settings = place.topics[size], self._settings
        return Group(
            group_id=group_id,
            topic=topic.name,
            topic_id=topic.topic_id,
            partitions=topic.partitions,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            draw=random.Random(f"{settings.seed} {round_number} {group_id}"),
            ownership=Ownership(topic.partitions),
        )

    def _failed(self, turn: Turn, where: str, error: BaseException) -> None:
        words = str(error) or type(error).__name__
        self._failures.append(Failure(variant=turn.variant, round=turn.round, where=where, error=words))
        self._tell(f"round {turn.round + 1} {turn.variant} {where}: failed: {words}")
