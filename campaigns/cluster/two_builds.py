"""Two builds of one cluster: the second one has a plug-in more, and knows a feature up to a higher level.

Each build finds its own plug-ins in a folder on its path, so the first one has no file of what it lacks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from blumfeld.testing.cluster import COMBINED, NodePlace, filled
from blumfeld_kit.cluster import REPLICATED, build_commands
from campaigns.clients.client import NO_REBALANCE_DELAY

FEATURE = "roll.version"
LEVELS = "roll_levels"
"""The plug-in that brings the feature, in both builds."""
WATCH = "roll_watch"
"""The plug-in that only the second build has."""
_LEVELS = """
from blumfeld.spi.hooks import Feature, NoOptions, hookimpl

class Plugin:
    options_class, roles = NoOptions, ("assignors",)

    @hookimpl
    def blumfeld_assignors(self):
        return ()

    @hookimpl
    def blumfeld_features(self):
        return (Feature("{feature}", 0, {level}, {level}),)
"""
_WATCH = """
from blumfeld.spi.hooks import NoOptions, hookimpl

class Watch:
    async def start(self):
        pass

    def requests(self, seen):
        pass

    async def stop(self):
        pass

class Plugin:
    options_class, roles = NoOptions, ("observers",)

    @hookimpl
    def blumfeld_make_observer(self, composition):
        return Watch()
"""


@attrs.frozen
class Build:
    """One of the two."""

    name: str
    level: int
    """The highest level of the feature that it knows."""
    watches: bool
    folder: Path

    @property
    def plugins(self) -> Mapping[str, str]:
        """Plug-in → its code."""
        levels = {LEVELS: _LEVELS.format(feature=FEATURE, level=self.level)}
        return {**levels, WATCH: _WATCH} if self.watches else levels

    def write(self) -> None:
        """Write its plug-ins as installed distributions, and its manifest."""
        for name, code in self.plugins.items():
            info = self.folder / f"{name}-{self.level}.dist-info"
            info.mkdir(parents=True)
            (self.folder / f"{name}.py").write_text(code)
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {self.level}\n")
            (info / "entry_points.txt").write_text(f"[blumfeld.plugins]\n{name} = {name}:Plugin\n")
        manifest = f'[groups]\nassignors = ["{LEVELS}"]\n'
        self.manifest.write_text(manifest + (f'[plugins]\nobservers = ["{WATCH}"]\n' if self.watches else ""))

    @property
    def manifest(self) -> Path:
        """Path of its manifest."""
        return self.folder / "broker.toml"

    def command(self, place: NodePlace, places: Sequence[NodePlace], folder: Path) -> list[str]:
        """Return the command that starts a node of this build in ``folder``."""
        command = build_commands(self.manifest, [*REPLICATED, NO_REBALANCE_DELAY])[COMBINED]
        path = os.pathsep.join([str(self.folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        return ["env", f"PYTHONPATH={path}", *filled(command, place, places, folder)]


def two_builds(folder: Path) -> tuple[Build, Build]:
    """Return build A and build B, written below ``folder``."""
    builds = Build("A", 1, False, folder / "build-a"), Build("B", 2, True, folder / "build-b")
    for build in builds:
        build.write()
    return builds
