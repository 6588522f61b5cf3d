"""Builds of the whole broker from the sources of this checkout, with the libraries that are installed here."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.builder.fakes import repack, write_wheel

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[2]
PLUGINS = ("consensus_kraft", "groups_classic", "net_asyncio", "replication_isr", "storage_memory")
SOURCES = ("core", "pyproject.toml", "README.md", "LICENSE", "NOTICE")
MANIFEST = """
storage.plugin = "storage_memory"
transactions.plugin = "none"
groups.plugins = ["groups_classic"]

[build]
"""


def libraries() -> set[str]:
    """What the core requires, and what those require."""
    names: set[str] = set()
    waiting = ["blumfeld", *(f"blumfeld-{plugin.replace('_', '-')}" for plugin in PLUGINS)]
    while waiting:
        for line in metadata.requires(waiting.pop()) or ():
            requirement = Requirement(line)
            here = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if here and requirement.name not in names and not requirement.name.startswith("blumfeld"):
                names.add(requirement.name)
                waiting.append(requirement.name)
    return names


def clone(folder: Path, deps: Path) -> Path:
    """Copy the sources of a small broker, with a manifest that names them."""
    for name in SOURCES:
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, folder / name)
    for plugin in PLUGINS:
        shutil.copytree(ROOT / "plugins" / plugin, folder / "plugins" / plugin)
    wheels = [str(deps), ".", *(f"plugins/{plugin}" for plugin in PLUGINS)]
    (folder / "broker.toml").write_text(f"{MANIFEST}wheels = {wheels}\n")
    return folder


def run_build(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``blumfeld build`` as a process."""
    command = [sys.executable, "-m", "blumfeld.cli.main", "build", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)


@pytest.fixture(scope="module")
def deps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The libraries as wheels."""
    folder = tmp_path_factory.mktemp("deps")
    for name in libraries():
        repack(name, folder)
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, deps: Path) -> Path:
    """A clone with a build in ``out``."""
    folder = clone(tmp_path_factory.mktemp("first"), deps)
    done = run_build(folder, "broker.toml", "--out", "out")
    assert done.returncode == 0, done.stderr
    return folder


def artefact(built: Path, *arguments: str) -> str:
    """Run a command of the artefact."""
    command = [str(built / "out/broker.pyz"), *arguments]
    done = subprocess.run(
        command, env=own_cache(built), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def own_cache(built: Path) -> dict[str, str]:
    """The environment of an artefact that is unpacked beside its build."""
    return {**os.environ, "PEX_ROOT": str(built / "cache")}


@pytest.fixture
def address(built: Path, tmp_path: Path) -> Iterator[str]:
    """Where a broker of the build serves. It ends with 0 on SIGTERM."""
    command = [
        str(built / "out/broker.pyz"),
        "run",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        str(tmp_path / "data"),
    ]
    with subprocess.Popen(command, env=own_cache(built), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        try:
            assert "storage_memory" in ready
            yield re.findall(r"PLAINTEXT (\S+)", ready)[0]
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 by path of all files."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_two_clones_give_the_same_bytes(built: Path, deps: Path, tmp_path: Path) -> None:
    """Nothing is locked: the wheels of the sources are built anew, and are the same."""
    second = clone(tmp_path, deps)
    done = run_build(second, "broker.toml", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert digests(second / "out") == digests(built / "out")


def test_the_artefact_has_these_plugins_and_no_others(built: Path) -> None:
    listed = {line.split()[0] for line in artefact(built, "plugins").splitlines()}
    assert listed == set(PLUGINS)


def test_the_artefact_knows_what_it_was_built_from(built: Path) -> None:
    assert artefact(built, "build", "--manifest") == (built / "broker.toml").read_text()
    assert artefact(built, "build", "--lock") == (built / "out/pylock.toml").read_text()
    assert artefact(built, "plan", "--json") == (built / "out/plan.json").read_text()


def test_a_client_produces_and_consumes(address: str) -> None:
    kafka = pytest.importorskip("confluent_kafka")
    producer = kafka.Producer({"bootstrap.servers": address, "log_level": 2})
    for number in range(100):
        producer.produce("ticks", str(number))
    assert producer.flush(30) == 0
    settings = {"group.id": "g", "auto.offset.reset": "earliest", "log_level": 2}
    consumer = kafka.Consumer({"bootstrap.servers": address, **settings})
    consumer.subscribe(["ticks"])
    taken = [message.value() for message in consumer.consume(100, 30)]
    consumer.close()
    assert taken == [str(number).encode() for number in range(100)]


def test_a_running_broker_tells_the_plan_of_its_build(built: Path, address: str) -> None:
    assert artefact(built, "plan", "--of", address, "--json") == (built / "out/plan.json").read_text()


def test_a_plugin_for_another_spi_is_told(built: Path, tmp_path: Path) -> None:
    code = (
        "from blumfeld.spi.hooks import NoOptions\n"
        'class Plugin:\n    options_class = NoOptions\n    roles = ("observers",)\n    requires_spi = "9.0"\n'
    )
    write_wheel(
        tmp_path, "acme-audit", plugins={"audit": "acme_audit:Plugin"}, files={"acme_audit/__init__.py": code}
    )
    manifest = (built / "broker.toml").read_text()
    manifest = manifest.replace(
        "\n[build]\n", '\n[plugins]\nobservers = ["audit"]\n\n[build]\nrequires = ["acme-audit"]\n'
    )
    manifest = manifest.replace("wheels = [", f"wheels = ['{tmp_path}', 'out/wheels', ").replace(
        ", '.',", ","
    )
    manifest = re.sub(r", 'plugins/\w+'", "", manifest)
    (built / "other.toml").write_text(manifest)
    done = run_build(built, "other.toml", "--out", str(tmp_path / "none"))
    (built / "other.toml").unlink()
    assert done.returncode == 2
    found = 'found "audit" of acme-audit 0.1.0, which was written for spi 9.0; allowed: spi '
    assert f"other.toml: plugins.observers[0]: {found}" in done.stderr
    assert not (tmp_path / "none").exists()
