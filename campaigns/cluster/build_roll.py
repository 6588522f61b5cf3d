"""``python -m campaigns build-roll``: three nodes under load go from one build to another, back, and over again; then a
feature is raised that only the second build knows, and the first one must refuse to start. Both are artefacts of
``blumfeld build``; ``make wheels`` comes before it.

Every record that was acknowledged is looked for at the end. docs/builds.md has the steps for an operator.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from blumfeld.cli.manifest import BAD_MANIFEST
from blumfeld.cli.plan.errors import NoPlanError
from blumfeld.cli.plan.running import plan_of_broker
from blumfeld.testing.cluster import LOOPBACK, node_places
from blumfeld.testing.process import STOP_TIMEOUT_S
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from blumfeld_kit.cluster import Cluster, Node, build_commands
from campaigns import artefacts
from campaigns.clients.access import Access
from campaigns.cluster.story import Step, Story, run_campaign
from campaigns.cluster.two_builds import FEATURE, Build, two_builds
from campaigns.terminal import refused

NODES = 3
UPDATE_VERSION = 1
REFUSAL = f"the feature {FEATURE} at level 2, where this build knows 0 to 1"


class BuildStory(Story[Node]):
    """Nodes that are made of one of two builds."""

    def __init__(self, folder: Path, rate_per_s: float) -> None:
        self.old, self.new = two_builds(folder)
        for build in (self.old, self.new):
            build.build()
        cluster = Cluster(build_commands(), node_places([LOOPBACK] * NODES), folder)
        super().__init__(cluster.nodes, Access(cluster.addresses), rate_per_s)

    def steps(self) -> Sequence[Step]:
        """From one build to the other, back, and over again; then a feature is raised."""
        return (
            ("from build A to build B", lambda: self.roll(self.new)),
            ("back to build A", lambda: self.roll(self.old)),
            ("two nodes of build B: the feature can't be raised", self.raise_too_early),
            ("the third node", lambda: self.renew(self.nodes[-1], self.new)),
            ("the feature is raised", self.raise_at_last),
            ("build A refuses the directories", self.go_back_too_late),
        )

    def make_of(self, node: Node, build: Build) -> None:
        """Let the next start of a node be one of this build."""
        places = [each.place for each in self.nodes]
        node.command = tuple(build.command(node.place, places, node.folder))

    def start(self) -> None:
        """Start the nodes with the first build, and put them under load."""
        for node in self.nodes:
            self.make_of(node, self.old)
        super().start()

    def roll(self, build: Build) -> None:
        """Restart one node after the other with a build, each when the cluster is whole again."""
        for node in self.nodes:
            self.renew(node, build)

    def renew(self, node: Node, build: Build) -> None:
        """Restart a node with a build, and hear from itself what it is made of."""
        self.make_of(node, build)
        self.restart(node, f"of build {build.name}")
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
        with self.nodes[0].connect(15.0) as connection:
            return int(connection.ask(request, UpdateFeaturesResponse, 1).error_code)

    def raise_too_early(self) -> None:
        """Roll but one node, and try to raise the feature: the last node doesn't know the level."""
        first, second, _ = self.nodes
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
        node = self.nodes[-1]
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if every promise was kept, 1 if not, 2 for wrong input."""
    parser = argparse.ArgumentParser(prog="python -m campaigns build-roll", description=__doc__)
    parser.add_argument("--rate", type=float, default=300.0, help="records a second")
    parser.add_argument("--folder", type=Path, help="data and logs of all nodes; it must be new, and is kept")
    parser.add_argument("--out", type=Path, help="result file, JSON")
    given = parser.parse_args(arguments)
    if missing := artefacts.absent():
        return refused("build-roll", missing)
    try:
        return run_campaign("build-roll", given, lambda folder: BuildStory(folder, given.rate))
    except artefacts.NotBuiltError as error:
        return refused("build-roll", error)


if __name__ == "__main__":
    sys.exit(main())
