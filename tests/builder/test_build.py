"""A build of tiny wheels: what is in the folder, that it is the same to the byte, and that no network is touched."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.builder.fakes import ROLES, make_workshop, write_plugin

UNREACHABLE = "http://127.0.0.1:1/simple"
FILES = {
    "Containerfile",
    "blumfeld.service",
    "broker.pyz",
    "plan.json",
    "pylock.toml",
    "sbom.cdx.json",
    "wheels",
}


def run_build(folder: Path, *arguments: str, **environment: str) -> None:
    """Run ``blumfeld build`` as a process, without a network where the machine can take it away."""
    without = ["unshare", "--net"] if can_leave_the_network() else []
    done = subprocess.run(
        [*without, sys.executable, "-m", "blumfeld.cli.main", "build", *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        umask=int(environment.get("UMASK", "022"), 8),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def can_leave_the_network() -> bool:
    """Whether a process of ours may have a network of its own, in which nothing can be reached."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode == 0


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 by path of all files."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a manifest, its wheels, and a build in ``out``, by a user whose settings of pex bring a plug-in."""
    folder = tmp_path_factory.mktemp("workshop")
    make_workshop(folder)
    home = tmp_path_factory.mktemp("home")
    write_plugin(home, "evil", "evil")
    (home / ".pexrc").write_text(f"PEX_UNZIP=1\nPEX_EXTRA_SYS_PATH={home / 'evil-0.1.0-py3-none-any.whl'}\n")
    run_build(folder, "broker.toml", "--out", "out", HOME=str(home))
    return folder


def test_a_build_has_every_file_and_leaves_no_other(workshop: Path) -> None:
    assert {path.name for path in (workshop / "out").iterdir()} == FILES
    assert {path.name for path in workshop.iterdir()} == {"broker.toml", "out", "wheels"}


def test_the_artefact_has_the_plugins_of_the_manifest_and_no_others(workshop: Path) -> None:
    plan = json.loads((workshop / "out/plan.json").read_text())
    assert plan["plugins"] == sorted(ROLES)
    assert plan["manifest"] == (workshop / "broker.toml").read_text()


def test_the_lock_names_every_wheel_with_its_hash(workshop: Path) -> None:
    lock = tomllib.loads((workshop / "out/pylock.toml").read_text())
    held = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (workshop / "out/wheels").iterdir()
    }
    locked = {
        wheel["name"]: wheel["hashes"]["sha256"]
        for package in lock["packages"]
        for wheel in package["wheels"]
    }
    assert locked == held
    assert len(locked) == len(ROLES) + 2
    assert str(workshop) not in (workshop / "out/pylock.toml").read_text()


@pytest.mark.slow
def test_the_same_lock_gives_the_same_bytes_elsewhere(workshop: Path, tmp_path: Path) -> None:
    """In another folder, with another umask, home, time zone and hash seed, without the manifest's wheels, and with an
    index that can't be reached: the wheels beside the lock are enough."""
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    text = (workshop / "broker.toml").read_text()
    shutil.copytree(workshop / "out", elsewhere / "given")
    (elsewhere / "broker.toml").write_text(text)
    (elsewhere / "wheels").symlink_to(elsewhere / "given/wheels")
    run_build(
        elsewhere,
        *("broker.toml", "--locked", "given/pylock.toml", "--out", "again"),
        UMASK="077",
        HOME=str(tmp_path),
        TZ="Asia/Tokyo",
        PYTHONHASHSEED="7",
        PIP_INDEX_URL=UNREACHABLE,
    )
    assert digests(elsewhere / "again") == digests(workshop / "out")
    modes = {path: path.stat().st_mode & 0o777 for path in (elsewhere / "again").rglob("*")}
    assert {oct(mode) for path, mode in modes.items() if path.is_file()} == {"0o644", "0o755"}
    assert os.access(elsewhere / "again/broker.pyz", os.X_OK)


def test_the_file_holds_its_manifest_lock_and_plan(workshop: Path) -> None:
    with zipfile.ZipFile(workshop / "out/broker.pyz") as file:
        held = {
            name.rpartition("/")[2]: file.read(name) for name in file.namelist() if "blumfeld_build/" in name
        }
    assert held["manifest.toml"] == (workshop / "broker.toml").read_bytes()
    assert held["pylock.toml"] == (workshop / "out/pylock.toml").read_bytes()
    assert held["plan.json"] == (workshop / "out/plan.json").read_bytes()
    assert held["name.txt"].startswith(b"broker-")


def test_pip_and_uv_install_from_the_lock(workshop: Path, tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--quiet", "--target", str(tmp_path / "pip")]
    subprocess.run(
        [*pip, "-r", "pylock.toml"], cwd=workshop / "out", check=True, capture_output=True, timeout=120
    )
    assert (tmp_path / "pip/blumfeld/cli/main.py").is_file()
    uv = shutil.which("uv", path=os.path.dirname(sys.executable)) or pytest.skip("no uv")
    install = [
        uv,
        "pip",
        "install",
        "--offline",
        "--quiet",
        "--python",
        sys.executable,
        "--target",
        str(tmp_path / "uv"),
    ]
    cache = {**os.environ, "UV_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run([*install, "-r", "pylock.toml"], cwd=workshop / "out", check=True, env=cache, timeout=120)
    assert (tmp_path / "uv/blumfeld/cli/main.py").is_file()


def test_the_bill_of_materials_is_valid_cyclonedx(workshop: Path) -> None:
    validation = pytest.importorskip("cyclonedx.validation.json")
    schema = pytest.importorskip("cyclonedx.schema")
    text = (workshop / "out/sbom.cdx.json").read_text()
    assert validation.JsonStrictValidator(schema.SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    assert len(bill["components"]) == len(ROLES) + 2
    [core] = [entry for entry in bill["dependencies"] if entry["ref"] == "pkg:pypi/blumfeld@0.1.0"]
    assert core["dependsOn"] == ["pkg:pypi/tiny-library@2.0"]
