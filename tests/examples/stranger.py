"""A plug-in as a stranger would write it: laid out as an installer does, or installed; and a Python that has it.

Every day from a folder on the path, without the network; once (marker ``wheel``) with the built wheels of the project
in a fresh environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer

from blumfeld.testing.process import free_port
from tests.wheels import Environment

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def lay_out(target: Path, example: Path) -> None:
    """Write what an installer would put into a folder on the path: the package and its metadata."""
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
    """A Python that has the plug-in, and a manifest that names it."""

    def __init__(self, python: str, folder: Path, manifest: str, path: Path | None = None) -> None:
        self.python = python
        self.folder = folder
        self.manifest = folder / "broker.toml"
        self.manifest.write_text(manifest)
        self._environment = dict(os.environ)
        if path is not None:
            self._environment["PYTHONPATH"] = str(path)

    def run(self, *arguments: str, timeout_s: float = 240) -> str:
        """Run a module, and return what it printed. Its failure is ours."""
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

    def plan(self) -> str:
        return self.run("blumfeld.cli.main", "plan", str(self.manifest))

    def kit(self, example: Path) -> str:
        """Run the example's own tests, which are the contract kit."""
        quiet = ("-q", "--hypothesis-seed=0", "-p", "no:cacheprovider")
        printed = self.run("pytest", *quiet, str(example / "tests"))
        assert " passed" in printed
        return printed

    @contextmanager
    def broker(self, *, killed: bool = False) -> Iterator[str]:
        """``blumfeld run`` with the manifest, ready; at the end it is stopped in good order, or killed."""
        address = f"127.0.0.1:{free_port()}"
        command = [self.python, "-m", "blumfeld.cli.main", "run", str(self.manifest)]
        command += ["--data-dir", str(self.folder / "data"), "--listen", address]
        process = subprocess.Popen(
            command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert "ready on" in ready, ready + (process.stdout.read() if process.poll() is not None else "")
        try:
            yield address
        finally:
            (process.kill if killed else process.terminate)()
            process.communicate(timeout=60)
        assert killed or process.returncode == 0


def stranger_of(example: Path, manifest: str, folder: Path) -> Stranger:
    """This Python, with the plug-in in a folder on the path."""
    target = folder / "site"
    target.mkdir()
    lay_out(target, example)
    return Stranger(sys.executable, folder, manifest, target)


def fresh_stranger_of(example: Path, manifest: str, folder: Path, wheels: Path) -> Stranger:
    """A Python of its own, with wheels of the default build, the kit and the plug-in."""
    environment = Environment(folder / "fresh", wheels)
    environment.install("blumfeld-default", f"{example.name.replace('_', '-')}[test]")
    return Stranger(environment.python, folder, manifest)


def produce(address: str, topic: str, values: Iterable[bytes]) -> None:
    """Write the values, each acknowledged."""
    producer = Producer({"bootstrap.servers": address})
    for value in values:
        producer.produce(topic, value=value)
    assert producer.flush(20) == 0


def consumed(address: str, topic: str, last: bytes) -> list[bytes]:
    """The values of a topic up to one."""
    settings = {"bootstrap.servers": address, "group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    values: list[bytes] = []
    while not values or values[-1] != last:
        message = consumer.poll(20)
        assert message is not None, values
        assert message.error() is None, message.error()
        value = message.value()
        assert isinstance(value, bytes)
        values.append(value)
    consumer.close()
    return values
