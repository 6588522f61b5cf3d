"""Two builds of one cluster: the second one has a plug-in more, and knows a feature up to a higher level.

Each is an artefact of ``blumfeld build``, so the first one has no file of what it lacks.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import msgspec

from blumfeld.testing.cluster import COMBINED, NodePlace, filled
from blumfeld_builder.artefact.embedded import wheel_bytes
from blumfeld_builder.artefact.pyz import FILE
from blumfeld_kit.cluster import REPLICATED, build_commands
from campaigns import artefacts
from campaigns.clients.client import NO_REBALANCE_DELAY

FEATURE = "roll.version"
LEVELS = "roll_levels"
"""The plug-in that brings the feature, in both builds."""
WATCH = "roll_watch"
"""The plug-in that only the second build has."""
UNPACK_TIMEOUT_S = 180.0
"""Longest time of an artefact's first start."""
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
        """Write its plug-ins as wheels, and its manifest."""
        self.folder.mkdir()
        for name, code in self.plugins.items():
            info = f"{name}-{self.level}.dist-info"
            files = {
                f"{name}.py": code,
                f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {self.level}\n",
                f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
                f"{info}/entry_points.txt": f"[blumfeld.plugins]\n{name} = {name}:Plugin\n",
            }
            wheel = wheel_bytes({path: text.encode() for path, text in files.items()}, info)
            (self.folder / f"{name}-{self.level}-py3-none-any.whl").write_bytes(wheel)
        manifest = f'[groups]\nassignors = ["{LEVELS}"]\n'
        manifest += f'[plugins]\nobservers = ["{WATCH}"]\n' if self.watches else ""
        wheels = msgspec.json.encode([".", str(artefacts.WHEELS)]).decode()
        manifest += (
            f"[build]\nrequires = {msgspec.json.encode([*self.plugins]).decode()}\nwheels = {wheels}\n"
        )
        self.manifest.write_text(manifest)

    def build(self) -> None:
        """Make the artefact, and unpack it: the nodes start together, and each would do so.

        :raises NotBuiltError: it can't be made
        """
        artefact = artefacts.build(self.manifest, self.artefact.parent)
        done = subprocess.run(
            [*self.program, "--version"],
            capture_output=True,
            text=True,
            timeout=UNPACK_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise artefacts.NotBuiltError(f"{artefact}: {done.stderr.strip()}")

    @property
    def manifest(self) -> Path:
        """Path of its manifest."""
        return self.folder / "broker.toml"

    @property
    def artefact(self) -> Path:
        """Path of its artefact."""
        return self.folder / "out" / FILE

    @property
    def program(self) -> Sequence[str]:
        """The command ``blumfeld`` of the artefact, which is unpacked beside it."""
        return "env", f"PEX_ROOT={self.folder / 'unpacked'}", str(self.artefact)

    def command(self, place: NodePlace, places: Sequence[NodePlace], folder: Path) -> list[str]:
        """Return the command that starts a node of this build in ``folder``."""
        commands = build_commands(settings=[*REPLICATED, NO_REBALANCE_DELAY], program=self.program)
        return filled(commands[COMBINED], place, places, folder)


def two_builds(folder: Path) -> tuple[Build, Build]:
    """Return build A and build B, written below ``folder``. They aren't built yet."""
    builds = Build("A", 1, False, folder / "build-a"), Build("B", 2, True, folder / "build-b")
    for build in builds:
        build.write()
    return builds
