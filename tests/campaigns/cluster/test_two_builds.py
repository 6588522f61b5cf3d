"""The two builds of ``build-roll`` differ in what the campaign says that they differ in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from blumfeld.kernel.description.differences import differences
from blumfeld.kernel.description.document import PlanDocument, decode_document
from blumfeld.testing.cluster import LOOPBACK, node_places
from blumfeld_builder.build import Request, read_recipe
from campaigns.cluster.two_builds import FEATURE, Build, two_builds


def planned(build: Build) -> PlanDocument:
    """What the build says that it is, in a process that has only its plug-ins on its path."""
    for wheel in build.folder.glob("*.whl"):
        ZipFile(wheel).extractall(build.folder)
    done = subprocess.run(
        [sys.executable, "-m", "blumfeld.cli.main", "plan", str(build.manifest), "--json"],
        env={**os.environ, "PYTHONPATH": str(build.folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return decode_document(done.stdout)


def test_the_second_build_has_a_plug_in_more_and_a_higher_level(tmp_path: Path) -> None:
    first, second = map(planned, two_builds(tmp_path))
    assert sorted((found.name, found.first, found.second) for found in differences(first, second)) == [
        ("assignors roll_levels", "roll_levels 1", "roll_levels 2"),
        ("observers roll_watch", "–", "roll_watch 2"),
        (FEATURE, "0–1, new clusters 1", "0–2, new clusters 2"),
    ]


def test_a_node_of_a_build_finds_its_plug_ins_and_no_others(tmp_path: Path) -> None:
    places = node_places([LOOPBACK] * 3)
    for build in two_builds(tmp_path):
        command = build.command(places[1], places, tmp_path / "node2")
        assert command[:2] == ["env", f"PEX_ROOT={build.folder / 'unpacked'}"]
        assert command[2:4] == [str(build.artefact), "run"]
        assert "node.id=2" in command
        recipe = read_recipe(Request(manifest=str(build.manifest), out=""))
        assert build.plugins.keys() <= {plugin.name for plugin in recipe.plugins}
        assert {path.name.partition("-")[0] for path in build.folder.glob("*.whl")} == build.plugins.keys()
