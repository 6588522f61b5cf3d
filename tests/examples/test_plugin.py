"""A plug-in as a stranger would write it: found by its entry point, named in a manifest, held by its contract kit.

Every day from a target folder on the path, without the network; once (marker ``wheel``) with the built wheel of the
project in a fresh environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from blumfeld.testing.process import free_port

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "acme_storage_ring"
MANIFEST = """
[storage]
plugin = "storage_ring"

[storage.options]
bytes_per_partition_max = 65536

[config]
"group.initial.rebalance.delay.ms" = 0
"""


def lay_out(target: Path, example: Path = EXAMPLE) -> None:
    """What an installer would put into a folder on the path: the package and its metadata. Needs no network."""
    project = tomllib.loads((example / "pyproject.toml").read_text())["project"]
    package = project["name"].replace("-", "_")
    shutil.copytree(example / package, target / package)
    info = target / f"{package}-{project['version']}.dist-info"
    info.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(metadata)
    lines = [f"{name} = {place}" for name, place in project["entry-points"]["blumfeld.plugins"].items()]
    (info / "entry_points.txt").write_text("\n".join(["[blumfeld.plugins]", *lines, ""]))


class Stranger:
    """A Python that has the plug-in."""

    def __init__(self, python: str, folder: Path, path: Path | None = None) -> None:
        self.python = python
        self.folder = folder
        self.manifest = folder / "broker.toml"
        self.manifest.write_text(MANIFEST)
        self._environment = dict(os.environ)
        if path is not None:
            self._environment["PYTHONPATH"] = str(path)

    def run(self, *arguments: str, timeout_s: float = 240) -> str:
        """Run a module; what it printed. Its failure is ours."""
        ran = subprocess.run(
            [self.python, "-m", *arguments],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def broker(self, port: int) -> subprocess.Popen[str]:
        """``blumfeld run`` with the manifest, ready."""
        command = [self.python, "-m", "blumfeld.cli.main", "run", str(self.manifest)]
        command += ["--data-dir", str(self.folder / "data"), "--listen", f"127.0.0.1:{port}"]
        process = subprocess.Popen(
            command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert "ready on" in ready, ready + (process.stdout.read() if process.poll() is not None else "")
        return process


@pytest.fixture
def stranger(tmp_path: Path) -> Stranger:
    """With the plug-in in a folder on the path."""
    target = tmp_path / "site"
    target.mkdir()
    lay_out(target)
    return Stranger(sys.executable, tmp_path, target)


def check_it_is_found(stranger: Stranger) -> None:
    """By ``plugins`` with its distribution, by ``plan`` with its promise."""
    listed = stranger.run("blumfeld.cli.main", "plugins")
    assert any("storage_ring" in line and "acme-storage-ring" in line for line in listed.splitlines()), listed
    plan = stranger.run("blumfeld.cli.main", "plan", str(stranger.manifest))
    assert "storage_ring" in plan
    assert "newest 65536 bytes" in " ".join(plan.split())


def check_it_serves(stranger: Stranger) -> None:
    """A client produces more than the ring holds, and reads what is left: the newest, to the end."""
    port = free_port()
    process = stranger.broker(port)
    try:
        server = {"bootstrap.servers": f"127.0.0.1:{port}"}
        producer = Producer({**server, "acks": "all", "linger.ms": 0})
        for n in range(400):
            producer.produce("ticks", f"{n}:".encode() + bytes(500))
            producer.poll(0)
            if n % 10 == 9:
                assert producer.flush(10) == 0
        consumer = Consumer({**server, "group.id": "readers", "auto.offset.reset": "earliest"})
        consumer.subscribe(["ticks"])
        found: list[int] = []
        while not found or found[-1] != 399:
            message = consumer.poll(10)
            assert message is not None, found
            assert message.error() is None, message.error()
            value = message.value()
            assert value is not None
            found.append(int(value.partition(b":")[0]))
        consumer.close()
        assert found == list(range(found[0], 400))
        assert 30 < len(found) < 200
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_it_is_found_by_its_entry_point(stranger: Stranger) -> None:
    check_it_is_found(stranger)


def test_a_broker_with_it_serves_clients(stranger: Stranger) -> None:
    check_it_serves(stranger)


def test_it_passes_the_contract_kit_as_its_author_would_run_it(stranger: Stranger) -> None:
    printed = stranger.run(
        "pytest", "-q", "--hypothesis-seed=0", "-p", "no:cacheprovider", str(EXAMPLE / "tests")
    )
    assert " passed" in printed


def test_a_wrong_option_of_it_is_refused_with_its_place(stranger: Stranger) -> None:
    """The kernel knows nothing of the plug-in but its options class."""
    stranger.manifest.write_text(MANIFEST.replace("bytes_per_partition_max", "bytes_per_partition"))
    with pytest.raises(AssertionError, match=r"storage\.options\.bytes_per_partition"):
        stranger.run("blumfeld.cli.main", "plan", str(stranger.manifest))


@pytest.mark.wheel
@pytest.mark.timeout(600)
def test_it_works_with_the_built_wheel_in_a_fresh_environment(tmp_path: Path) -> None:
    """What is packaged is all that is needed: nothing of this checkout is on the path."""
    wheels = tmp_path / "wheels"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = [
        *pip,
        "wheel",
        "--no-deps",
        "--wheel-dir",
        str(wheels),
        str(ROOT),
        str(ROOT / "kit"),
        str(EXAMPLE),
    ]
    subprocess.run(build, check=True, timeout=300)
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "fresh")], check=True, timeout=120)
    python = str(tmp_path / "fresh" / "bin" / "python")
    packages = [str(wheel) for wheel in wheels.glob("*.whl")]
    install = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", *packages]
    subprocess.run(install, check=True, timeout=300)
    stranger = Stranger(python, tmp_path)
    check_it_is_found(stranger)
    check_it_serves(stranger)
    with pytest.raises(AssertionError, match=r"^blumfeld: confluent_kafka is not installed: pip install"):
        stranger.run("blumfeld.cli.main", "demo")
    tests = tmp_path / "tests"
    shutil.copytree(EXAMPLE / "tests", tests)
    assert " passed" in stranger.run(
        "pytest", "-q", "--hypothesis-seed=0", "-p", "no:cacheprovider", str(tests)
    )
