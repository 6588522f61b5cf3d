"""``python -m campaigns build-roll``: three nodes under load go from one build to another, back, and over again; then a
feature is raised that only the second build knows, and the first one must refuse to start.

Every record that was acknowledged is looked for at the end. docs/builds.md has the steps for an operator.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from rich.markup import escape

from blumfeld.cli.manifest import BAD_MANIFEST
from blumfeld.cli.plan.errors import NoPlanError
from blumfeld.cli.plan.running import plan_of_broker
from blumfeld.testing.cluster import LOOPBACK, node_places
from blumfeld.testing.process import STOP_TIMEOUT_S, NodeError
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from blumfeld_kit.cluster import Cluster, Node, build_commands
from campaigns.clients.load.groups import Groups
from campaigns.clients.load.load import TOPIC, Load, NoLoadError
from campaigns.clients.load.producers import LIBRDKAFKA
from campaigns.cluster.phases import Phases, Report
from campaigns.cluster.two_builds import FEATURE, Build, two_builds
from campaigns.cluster.wholeness import await_whole
from campaigns.figures import save
from campaigns.terminal import console_of, print_wrong, refused

NODES = 3
PARTITIONS = 6
OWNED_S = 60.0
UPDATE_VERSION = 1
REFUSAL = f"the feature {FEATURE} at level 2, where this build knows 0 to 1"


class Story:
    """The nodes of one run, and their clients."""

    def __init__(self, folder: Path, rate_per_s: float) -> None:
        self.old, self.new = two_builds(folder)
        places = node_places([LOOPBACK] * NODES)
        self.cluster = Cluster(build_commands(), places, folder)
        self.load = Load(self.cluster.addresses, PARTITIONS, rate_per_s)
        self.groups = Groups(self.cluster.addresses, TOPIC, PARTITIONS)

    def admin(self) -> Any:
        """Return an admin client."""
        return AdminClient({**LIBRDKAFKA, "bootstrap.servers": self.cluster.addresses})

    def make_of(self, node: Node, build: Build) -> None:
        """Let the next start of a node be one of this build."""
        places = [each.place for each in self.cluster.nodes]
        node.command = tuple(build.command(node.place, places, node.folder))

    def start(self) -> None:
        """Start the nodes with the first build, and put them under load."""
        for node in self.cluster.nodes:
            self.make_of(node, self.old)
        self.cluster.start()
        self.load.make_topic(NODES, {"min.insync.replicas": "2"})
        self.await_whole("the start")
        self.load.start()
        self.groups.start()
        if max(self.groups.await_owned(OWNED_S).values()) >= OWNED_S:
            self.load.wrong.append(f"the start: partitions without an owner: {self.groups.describe()}")

    def await_whole(self, words: str) -> None:
        """As :func:`campaigns.cluster.wholeness.await_whole`."""
        await_whole(self.admin, NODES, self.load, words)

    def roll(self, build: Build) -> None:
        """Restart one node after the other with a build, each when the cluster is whole again."""
        for node in self.cluster.nodes:
            self.renew(node, build)

    def renew(self, node: Node, build: Build) -> None:
        """Restart a node with a build, and hear from itself what it is made of."""
        status = node.stop()
        if status:
            self.load.wrong.append(f"{node.name} ended with status {status}")
        self.make_of(node, build)
        node.start()
        self.await_whole(f"{node.name} of build {build.name}")
        self.check_plan(node, build)

    def check_plan(self, node: Node, build: Build) -> None:
        """Compare what a running node says that it is made of."""
        try:
            said = plan_of_broker(node.place.host, node.place.port)
        except NoPlanError as error:
            self.load.wrong.append(str(error))
            return
        names = {plugin.name for plugin in said.plugins}
        levels = {feature.name: feature.max_level for feature in said.features}
        if not (build.plugins.keys() <= names and levels[FEATURE] == build.level):
            self.load.wrong.append(f"{node.name} of build {build.name} says: {sorted(names)}, {levels}")

    def raise_feature(self) -> int:
        """Raise the feature to the level of the second build. Return the error code of the answer."""
        update = FeatureUpdateKey(
            feature=FEATURE, max_version_level=self.new.level, upgrade_type=UPDATE_VERSION
        )
        request = UpdateFeaturesRequest(feature_updates=[update], timeout_ms=10_000)
        with self.cluster.nodes[0].connect(15.0) as connection:
            return int(connection.ask(request, UpdateFeaturesResponse, 1).error_code)

    def raise_too_early(self) -> None:
        """Roll but one node, and try to raise the feature: the last node doesn't know the level."""
        first, second, _ = self.cluster.nodes
        for node in (first, second):
            self.renew(node, self.new)
        code = self.raise_feature()
        if code != ErrorCode.INVALID_UPDATE_VERSION:
            self.load.wrong.append(f"a level that one node doesn't know was answered with {code}")

    def raise_at_last(self) -> None:
        """Raise the feature: every node knows it now."""
        code = self.raise_feature()
        if code:
            self.load.wrong.append(f"the feature was not raised: error {code}")

    def go_back_too_late(self) -> None:
        """Start a node with the first build: it must refuse. Then start it with the second one."""
        node = self.cluster.nodes[-1]
        node.stop()
        self.make_of(node, self.old)
        node.launch()
        try:
            status = node.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            status = None
            node.kill()
        if status != BAD_MANIFEST or REFUSAL not in node.printed():
            self.load.wrong.append(f"build A on raised directories: status {status}, {node.printed()[-500:]}")
        self.make_of(node, self.new)
        node.start()
        self.await_whole("build B after build A was refused")


def run(story: Story, say: Callable[[str], None]) -> Report:
    """Run all phases, and make the account."""
    phases = Phases(story.load, say)
    is_whole = False
    try:
        story.start()
        time.sleep(3)
        phases.run("from build A to build B", lambda: story.roll(story.new))
        phases.run("back to build A", lambda: story.roll(story.old))
        phases.run("two nodes of build B: the feature can't be raised", story.raise_too_early)
        phases.run("the third node", lambda: story.renew(story.cluster.nodes[-1], story.new))
        phases.run("the feature is raised", story.raise_at_last)
        phases.run("build A refuses the directories", story.go_back_too_late)
        is_whole = True
    except (NodeError, KafkaException, OSError) as error:
        story.load.wrong.append(repr(error))
    finally:
        phases.finish(story.groups, is_whole=is_whole)
    return phases.report()


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if every promise was kept, 1 if not, 2 for wrong input."""
    parser = argparse.ArgumentParser(prog="python -m campaigns build-roll", description=__doc__)
    parser.add_argument("--rate", type=float, default=300.0, help="records a second")
    parser.add_argument("--folder", type=Path, help="data and logs of all nodes; it must be new, and is kept")
    parser.add_argument("--out", type=Path, help="result file, JSON")
    given = parser.parse_args(arguments)
    console = console_of()
    with ExitStack() as stack:
        made = tempfile.TemporaryDirectory(prefix="blumfeld-build-roll-")
        folder = given.folder or Path(stack.enter_context(made))
        folder.mkdir(parents=True, exist_ok=True)
        story = Story(folder.resolve(), given.rate)
        stack.callback(story.cluster.stop)
        try:
            report = run(story, lambda line: console.print(escape(line)))
        except NoLoadError as error:
            return refused("build-roll", error)
    console.print(report.told)
    print_wrong(console, report.wrong)
    save(given.out, report)
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
