"""The work of ``blumfeld migrate`` on a tree."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from blumfeld.plugging.errors import ManifestError, Problem, file_problem
from blumfeld.plugging.sections import decode_section, read_section
from blumfeld.spi.cluster import Endpoint
from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.steps import at_once
from blumfeld.spi.zookeeper import NoNodeError, ZooKeeper, ZooKeeperError
from blumfeld_consensus_zk_compat.migration.claim import give_back
from blumfeld_consensus_zk_compat.migration.copying import unfinished, unready
from blumfeld_consensus_zk_compat.options import Options, access_of
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms import ControllerNode, MigrationNode, TreeError, decode_migration
from blumfeld_consensus_zk_compat.tree.loading import Loaded, loaded
from blumfeld_consensus_zk_compat.zookeeper import open_session

PLUGIN = "consensus_zk_compat"
DIAL_S = 3.0


class NotRolledBackError(Exception):
    """The tree can't be given back now."""


FAILURES = (ManifestError, TreeError, ZooKeeperError, OSError, NotRolledBackError)
"""The errors that end a command with a line."""


class Facts(NamedTuple):
    """What a tree says of a migration."""

    migration: MigrationNode
    controller: ControllerNode | None
    brokers: tuple[int, ...]
    """Those with a znode."""
    unready: tuple[int, ...]
    """Those of them that take part in no migration."""
    absent: tuple[int, ...]
    """Those that have replicas and no znode: they read the log, or are down."""
    unfinished: str

    @property
    def begun(self) -> bool:
        """Whether the quorum has taken the cluster over."""
        return self.migration.kraft_controller_epoch >= 0


def facts_of(tree: Loaded, migration: MigrationNode) -> Facts:
    """Returns the facts of a tree that was read."""
    image = tree.image
    replicas = {
        replica
        for topic in image.topics.values()
        for partition in topic.partitions.values()
        for replica in partition.replicas
    }
    return Facts(
        migration=migration,
        controller=tree.controller,
        brokers=tuple(sorted(image.registrations)),
        unready=tuple(unready(image.registrations)),
        absent=tuple(sorted(replicas - image.registrations.keys())),
        unfinished=unfinished(tree),
    )


def status_lines(facts: Facts) -> list[str]:
    """Returns the phase and what to do next, as docs/zookeeper-migration.md numbers the phases."""
    if not facts.begun:
        if facts.unready:
            return [
                "phase 1: the ZooKeeper's controller is at work",
                f"next: start brokers {_ids(facts.unready)} again with options.metadata_migration_enable = true",
            ]
        waits = [f"their leader will wait: {facts.unfinished}"] if facts.unfinished else []
        return [
            "phase 2: every broker in the tree takes part",
            "next: start the controllers with [migration], if they aren't; their leader claims the tree",
            *waits,
        ]
    at = f"controller {facts.migration.kraft_controller_id}, offset {facts.migration.kraft_metadata_offset}"
    if facts.migration.kraft_metadata_offset < 0:
        return [f"phase 2: the tree is being copied ({at})", "next: wait; the controllers' log says more"]
    lines = [f"phase 3: the log decides, and the tree has it up to: {at}"]
    if facts.brokers:
        lines.append(f"brokers that read the tree: {_ids(facts.brokers)}")
    if facts.absent:
        lines.append(f"brokers with replicas that read the log, or are down: {_ids(facts.absent)}")
    if facts.brokers:
        return [
            *lines,
            "next: phase 4: start those that read the tree again as nodes of the quorum, one by one",
            "way back: start those that read the log as before, stop the controllers, blumfeld migrate rollback",
        ]
    return [
        *lines,
        "next: phase 5: start the controllers again without [migration], one by one; no way back behind it",
    ]


def refusal(facts: Facts, *, controller_listens: bool) -> str:
    """Returns why the tree isn't given back now; "" if it may be."""
    if not facts.begun:
        return "no migration has begun: the tree is its brokers'"
    if controller_listens:
        return "a controller of the quorum still listens: stop all of them (SIGTERM) first"
    if facts.absent:
        return (
            f"brokers {_ids(facts.absent)} have replicas and no znode: start them with the ZooKeeper first, or their "
            "partitions have no leader"
        )
    return ""


def _ids(ids: tuple[int, ...]) -> str:
    return ", ".join(map(str, ids))


async def read_status(zookeeper: ZooKeeper) -> list[str]:
    """Returns the lines of ``status``."""
    facts, _, _ = await _read(zookeeper)
    return status_lines(facts)


async def listens(endpoint: Endpoint) -> bool:
    """Returns whether somebody accepts connections there."""
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(endpoint.host, endpoint.port), DIAL_S)
    except OSError:  # TimeoutError is one
        return False
    writer.close()
    return True


async def roll_back(
    zookeeper: ZooKeeper, listens: Callable[[Endpoint], Awaitable[bool]] = listens
) -> list[str]:
    """Give the tree back.

    :param listens: whether somebody accepts connections at an address

    :raises NotRolledBackError: it can't be
    """
    facts, epoch_version, migration_version = await _read(zookeeper)
    endpoint = None if facts.controller is None else facts.controller.endpoint
    reason = refusal(facts, controller_listens=endpoint is not None and await listens(endpoint))
    if reason:
        raise NotRolledBackError(reason)
    await give_back(zookeeper, epoch_version, migration_version)
    return ["the tree is its brokers' again: one of them is elected as controller"]


async def _read(zookeeper: ZooKeeper) -> tuple[Facts, int, int]:
    read: Any = at_once(loaded(zookeeper, in_migration=True))
    tree: Loaded = await read if isinstance(read, Completion) else read
    migration, version = MigrationNode(), -1
    try:
        node = await zookeeper.get(paths.MIGRATION)
    except NoNodeError:
        pass
    else:
        version = node.stat.version
        if node.data:
            migration = decode_migration(paths.MIGRATION, node.data)
    return facts_of(tree, migration), tree.versions.controller_epoch, version


# The session


class _Section(msgspec.Struct, frozen=True):
    plugin: str | None = None
    options: dict[str, Any] = {}


class _CommandRuntime:
    """As much of a runtime as a session needs."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def call_later(self, delay_ms: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_ms / 1_000, callback)

    def in_thread(self, callback: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(callback)

    def monotonic_ms(self) -> float:
        return self._loop.time() * 1_000


def options_of(manifest: Path) -> Options:
    """Returns the options that a manifest has for this plug-in.

    :raises ManifestError: it has none
    """
    try:
        text = manifest.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(str(manifest), [file_problem(error)]) from None
    for name in ("migration", "consensus"):
        section = read_section(text, name, _Section, str(manifest), {})
        if section.plugin == PLUGIN:
            return decode_section(section.options, Options, str(manifest), f"{name}.options")
    allowed = f'[migration] or [consensus] with plugin = "{PLUGIN}", which names the ZooKeeper'
    raise ManifestError(str(manifest), [Problem("migration", "no such plug-in", allowed)])


async def with_tree(manifest: Path, work: Callable[[ZooKeeper], Awaitable[list[str]]]) -> list[str]:
    """Do something with the tree that a manifest names, in a session of its own."""
    options = options_of(manifest)
    zookeeper = open_session(cast("Runtime", _CommandRuntime()), access_of(options, create_chroot=False))
    try:
        await zookeeper.connect(options.connection_timeout_ms)
        return await work(zookeeper)
    finally:
        await zookeeper.close()
