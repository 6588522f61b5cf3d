"""A cluster on a real ZooKeeper migrates to KRaft under load, goes back, and migrates to the end.

Every record that was acknowledged is looked for at the end. Between the phases a leader of the quorum and a broker are
killed.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.markup import escape

from blumfeld.testing.cluster import BROKER, CONTROLLER, LOOPBACK, Roles, filled, node_places
from blumfeld.testing.process import NodeError, start_together
from blumfeld_kit.cluster import Cluster, Node, build_commands
from campaigns.clients.load.load import TOPIC, Load, NoLoadError
from campaigns.cluster.observer import Observer
from campaigns.cluster.phases import Phases, Report, tell
from campaigns.cluster.rounds import DATA
from campaigns.terminal import add_node_options, console_of, folder_of, refused
from campaigns.waits import await_true
from campaigns.zookeeper_server import (
    CHROOT,
    SESSION_TIMEOUT_MS,
    ZooKeeperServer,
    running,
    zookeeper_ensemble,
    zookeeper_settings,
)

ROLES: tuple[Roles, ...] = (*(BROKER,) * 3, *(CONTROLLER,) * 3)
BROKERS, CONTROLLERS = (1, 2, 3), (4, 5, 6)
PARTITIONS = 6
PHASE_S = 90.0
"""Longest time of a phase."""
FOLLOWS = "the ZooKeeper follows the log"
ENDED = "the migration from the ZooKeeper is ended"
MANIFEST = "migration.toml"


class Story:
    """The nodes of one run, in the kinds that they have had."""

    def __init__(self, folder: Path, connect: str, rate_per_s: float, laid: Sequence[str]) -> None:
        self.connect = connect
        self.manifest = folder / MANIFEST
        self.manifest.write_text(
            f'[migration]\nplugin = "consensus_zk_compat"\noptions.connect = "{connect}"\n'
        )
        takes_part = "consensus.options.metadata_migration_enable=true"
        reads_tree = (*zookeeper_settings(connect, SESSION_TIMEOUT_MS), takes_part, *laid)
        migrates = (
            'migration.plugin="consensus_zk_compat"',
            f'migration.options.connect="{connect}"',
            f"migration.options.session_timeout_ms={SESSION_TIMEOUT_MS}",
            *laid,
        )
        self.commands: Mapping[str, tuple[str, ...]] = {
            "zookeeper": build_commands(None, reads_tree)[BROKER],
            "kraft": build_commands(None, laid)[BROKER],
            "migrating": build_commands(None, migrates)[CONTROLLER],
            "ended": build_commands(None, laid)[CONTROLLER],
        }
        commands = {BROKER: self.commands["zookeeper"], CONTROLLER: self.commands["migrating"]}
        self.places = node_places([LOOPBACK] * len(ROLES), roles=ROLES)
        self.cluster = Cluster(commands, self.places, folder)
        self.load = Load(self.cluster.addresses, PARTITIONS, rate_per_s)
        self.observer = Observer(self.cluster, TOPIC)

    @property
    def controllers(self) -> list[Node]:
        """The nodes of the quorum."""
        return [self.cluster.node(node_id) for node_id in CONTROLLERS]

    def said(self, text: str) -> int:
        """How often the controllers have said something."""
        logs = (node.log_path for node in self.controllers if node.log_path.exists())
        return sum(log.read_text(errors="replace").count(text) for log in logs)

    def as_kind(self, node_id: int, kind: str) -> None:
        """Stop a node, and start it as another kind."""
        node = self.cluster.node(node_id)
        if node.is_up:
            node.stop()
        node.command = tuple(filled(self.commands[kind], node.place, self.places, node.folder))
        node.start()

    def roll(self, node_ids: Sequence[int], kind: str) -> None:
        """Start nodes as another kind, one by one, each when the cluster is whole again."""
        for node_id in node_ids:
            self.as_kind(node_id, kind)
            self.await_whole(f"node {node_id} as {kind}")

    def await_whole(self, words: str) -> None:
        """Wait until every broker shows all brokers, and every partition in sync on all."""

        def is_whole() -> bool:
            seen = [self.observer.topic_of(node) for node in self.cluster.brokers]
            return all(state is not None and state.is_whole(len(BROKERS)) for state in seen)

        if not await_true(is_whole, PHASE_S):
            self.load.wrong.append(f"{words}: not whole in {PHASE_S:.0f} s: {self.observer.describe()}")
        if not self.load.await_acks(time.monotonic(), PHASE_S):
            self.load.wrong.append(f"{words}: a partition takes no records")

    def await_said(self, text: str, times: int) -> None:
        """Wait until the controllers have said something so often."""
        if not await_true(lambda: self.said(text) >= times, PHASE_S):
            self.load.wrong.append(f"no controller said {text!r} ({times}) in {PHASE_S:.0f} s")

    # Phases

    def start(self) -> None:
        """Start the brokers, and put them under load."""
        brokers = [self.cluster.node(node_id) for node_id in BROKERS]
        start_together(brokers, brokers)
        self.load.make_topic(3, {"min.insync.replicas": "2"})
        self.load.start()

    def copy(self) -> None:
        """Start the controllers; the tree is copied."""
        before = self.said(FOLLOWS)
        start_together(self.controllers, [])
        self.await_said(FOLLOWS, before + 1)
        self.await_whole("the copy")

    def kill_leader_of_quorum(self) -> None:
        """Kill the controller that has the tree; the next one claims it."""
        before = self.said(FOLLOWS)
        leader = max(
            self.controllers,
            key=lambda node: _last(node.log_path.read_text(errors="replace"), FOLLOWS),
        )
        leader.kill()
        self.await_said(FOLLOWS, before + 1)
        leader.start()
        self.await_whole("a killed controller")

    def kill_broker(self) -> None:
        """Kill a broker that reads the tree, and start it again."""
        node = self.cluster.node(BROKERS[0])
        node.kill()
        time.sleep(SESSION_TIMEOUT_MS / 1_000 + 2)
        node.start()
        self.await_whole("a killed broker")

    def go_back(self) -> None:
        """Give the tree back, and format the controllers anew."""
        for node in self.controllers:
            node.stop()
        command = [sys.executable, "-m", "blumfeld.cli.main", "migrate", "rollback", str(self.manifest)]
        given = subprocess.run(command, capture_output=True, text=True, timeout=PHASE_S, check=False)
        if given.returncode:
            self.load.wrong.append(f"blumfeld migrate rollback: {given.stdout}{given.stderr}")
        self.await_whole("the way back")
        for node in self.controllers:
            shutil.rmtree(node.folder / DATA)

    def end(self) -> None:
        """End the migration."""
        for node_id in CONTROLLERS:
            self.as_kind(node_id, "ended")
        self.await_said(ENDED, 1)
        self.await_whole("the end")


def _last(text: str, words: str) -> str:
    """Return the last line with these words: lines begin with their time."""
    return max((line for line in text.splitlines() if words in line), default="")


def run(story: Story, server: ZooKeeperServer, say: Callable[[str], None]) -> Report:
    """Run all phases, and make the account."""
    story.start()
    phases = Phases(story.load, say)
    wait_s = 5.0
    try:
        time.sleep(5)
        phases.run("the copy", story.copy)
        phases.run("brokers to the log", lambda: story.roll(BROKERS, "kraft"))
        phases.run("brokers back to the tree", lambda: story.roll(BROKERS, "zookeeper"))
        phases.run("the way back", story.go_back)
        phases.run("the copy, once more", story.copy)
        phases.run("the quorum's leader killed", story.kill_leader_of_quorum)
        phases.run("a broker killed", story.kill_broker)
        phases.run("brokers to the log, once more", lambda: story.roll(BROKERS, "kraft"))
        phases.run("the end", story.end)
        phases.run("without the ZooKeeper", server.kill)
        wait_s = 60.0
    except NodeError as error:
        story.load.wrong.append(str(error))
    finally:
        story.load.finish(wait_s)
    return phases.report()


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if every promise was kept, 1 if not, 2 for wrong input or without a ZooKeeper server."""
    parser = argparse.ArgumentParser(prog="python -m campaigns zookeeper-migration", description=__doc__)
    parser.add_argument("--rate", type=float, default=300.0, help="records a second")
    add_node_options(parser)
    given = parser.parse_args(arguments)
    console = console_of()
    with contextlib.ExitStack() as stack:
        folder = folder_of("zookeeper-migration", given, stack)
        try:
            servers = zookeeper_ensemble(folder / "zookeeper")
            addresses = stack.enter_context(running(servers))
        except (FileNotFoundError, NodeError) as error:
            return refused("zookeeper-migration", error)
        story = Story(folder, f"{addresses}/{CHROOT}", given.rate, given.set)
        try:
            report = run(story, servers[0], lambda line: console.print(escape(line)))
        except (NodeError, NoLoadError) as error:
            return refused("zookeeper-migration", error)
        finally:
            story.cluster.stop()
    return tell(console, report, given.out)


if __name__ == "__main__":
    sys.exit(main())
