"""The OCI layout: tools that others wrote read it, and its bytes follow from the wheels and the base."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from blumfeld.plugging.errors import ManifestError
from blumfeld_builder.artefact.library import unpack
from blumfeld_builder.oci.base import architecture, read_base
from blumfeld_builder.oci.image import LIBRARY, compile_library, write_image
from blumfeld_builder.target import HERE, Target
from tests.builder.fakes import make_workshop

PORTS = [9092]


@pytest.fixture(scope="module")
def rootfs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root file system with an interpreter that is none, a link, and a hard link."""
    root = tmp_path_factory.mktemp("root")
    (root / "usr/bin").mkdir(parents=True)
    (root / f"usr/bin/python{HERE}").write_text("#!/bin/sh\n")
    (root / f"usr/bin/python{HERE}").chmod(0o755)
    (root / "bin").symlink_to("usr/bin")
    os.link(root / f"usr/bin/python{HERE}", root / "usr/bin/python3")
    os.mkfifo(root / "pipe")
    return root


def image_of(folder: Path, base_path: Path, name: str = "image") -> Path:
    """Write the image of a workshop's wheels."""
    work = folder / f"{name}-work"
    work.mkdir()
    if not (folder / "wheels").exists():
        make_workshop(folder)
    target = Target(HERE, sys.executable)
    unpack(sorted(map(str, (folder / "wheels").glob("*.whl"))), str(work / "library"))
    compile_library(str(work / "library"), target, str(work))
    base = read_base(str(base_path), HERE, str(work))
    write_image(str(folder / name), base, str(work / "library"), PORTS, str(work))
    return folder / name


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory, rootfs: Path) -> Path:
    """An image on the root file system."""
    return image_of(tmp_path_factory.mktemp("image"), rootfs)


def blob(layout: Path, descriptor: dict[str, str]) -> Path:
    """The path of a blob."""
    return layout / "blobs/sha256" / descriptor["digest"].partition(":")[2]


def manifest_of(layout: Path) -> dict[str, list[dict[str, str]]]:
    """The image manifest of a layout."""
    [described] = json.loads((layout / "index.json").read_text())["manifests"]
    return dict(json.loads(blob(layout, described).read_text()))


def test_a_layer_has_the_wheels_unpacked_with_their_bytecode(image: Path) -> None:
    base, own = manifest_of(image)["layers"]
    with tarfile.open(blob(image, own)) as tar:
        entries = {entry.name: entry for entry in tar}
    assert f"{LIBRARY}/blumfeld/cli/main.py" in entries
    assert any(name.startswith(f"{LIBRARY}/blumfeld/cli/__pycache__/main.") for name in entries)
    assert f"{LIBRARY}/blumfeld-0.1.0.dist-info/METADATA" in entries
    assert {entry.mtime for entry in entries.values()} == {315532800}
    assert entries["var/lib/blumfeld"].uid == 10001
    assert {oct(entry.mode) for entry in entries.values()} <= {"0o755", "0o644"}
    with tarfile.open(blob(image, base)) as tar:
        kinds = {entry.name: (entry.type, entry.linkname) for entry in tar}
    assert kinds["bin"] == (tarfile.SYMTYPE, "usr/bin")
    assert kinds[f"usr/bin/python{HERE}"] == (tarfile.LNKTYPE, "usr/bin/python3")
    assert "pipe" not in kinds


def test_the_same_wheels_and_base_give_the_same_bytes(image: Path, rootfs: Path, tmp_path: Path) -> None:
    again = image_of(tmp_path, rootfs)
    assert sorted(path.name for path in again.rglob("*")) == sorted(path.name for path in image.rglob("*"))


def test_an_image_is_a_base_for_another(image: Path, tmp_path: Path) -> None:
    second = image_of(tmp_path, image)
    assert [layer["digest"] for layer in manifest_of(second)["layers"][:2]] == [
        layer["digest"] for layer in manifest_of(image)["layers"]
    ]


@pytest.mark.parametrize("tool", ["skopeo", "umoci"])
def test_a_tool_of_others_reads_the_layout(image: Path, tmp_path: Path, tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"no {tool}")
    if tool == "skopeo":
        subprocess.run(
            ["skopeo", "--insecure-policy", "copy", "--quiet", f"oci:{image}:latest", f"dir:{tmp_path}/copy"],
            check=True,
            timeout=60,
        )
        shown = json.loads(
            subprocess.run(
                ["skopeo", "inspect", "--config", f"oci:{image}:latest"],
                check=True,
                capture_output=True,
                timeout=60,
            ).stdout
        )
        assert shown["config"]["Entrypoint"] == [f"/usr/bin/python{HERE}", "-P", "-m", "blumfeld.cli.main"]
        assert shown["config"]["ExposedPorts"] == {"9092/tcp": {}}
    else:
        subprocess.run(
            ["umoci", "unpack", "--rootless", "--image", f"{image}:latest", str(tmp_path / "bundle")],
            check=True,
            capture_output=True,
            timeout=60,
        )
        assert (tmp_path / "bundle/rootfs" / LIBRARY / "blumfeld/cli/main.py").is_file()


def without_python(folder: Path, _: Path) -> Path:
    return folder


def of_another_platform(folder: Path, image: Path) -> Path:
    shutil.copytree(image, folder / "other")
    described = json.loads((folder / "other/index.json").read_text())["manifests"][0]
    described["platform"]["architecture"] = "s390x"
    (folder / "other/index.json").write_text(json.dumps({"manifests": [described]}))
    return folder / "other"


def without_a_blob(folder: Path, image: Path) -> Path:
    shutil.copytree(image, folder / "other")
    blob(folder / "other", manifest_of(image)["layers"][0]).unlink()
    return folder / "other"


def with_json_that_is_none(folder: Path, _: Path) -> Path:
    (folder / "oci-layout").write_text("{}")
    (folder / "index.json").write_text("{")
    return folder


def without_a_manifest(folder: Path, _: Path) -> Path:
    (folder / "oci-layout").write_text("{}")
    (folder / "index.json").write_text("{}")
    return folder


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (
            without_python,
            f"in which no python{HERE} is; allowed: a base with python{HERE} in usr/local/bin, usr/bin, bin",
        ),
        (of_another_platform, f"which has 0 images for linux/{architecture()}; allowed: a layout with one"),
        (without_a_blob, "in which the blob "),
        (without_a_manifest, "in which 'config' is missing; allowed: a whole layout"),
        (with_json_that_is_none, "whose index.json can't be read: "),
        (
            lambda folder, _: folder / "absent",
            "which is neither an OCI image layout nor a folder; allowed: a layout",
        ),
    ],
)
def test_a_base_that_cant_be_one_is_told(tmp_path: Path, image: Path, make: object, found: str) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "work").mkdir()
    path = make(tmp_path / "base", image)  # type: ignore[operator]
    with pytest.raises(ManifestError) as raised:
        read_base(str(path), HERE, str(tmp_path / "work"))
    assert f"--base: found {path}, {found}" in str(raised.value)
