"""The source distribution is the project: it builds and its tests are all there. Extras hold what a user needs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def collected(top: Path) -> int:
    """Number of tests that pytest collects there, with the code that lies there."""
    code = [top, *(top / name for name in ("core", "kit", "bench")), *sorted((top / "plugins").iterdir())]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"],
        cwd=top,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, code))},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    match = re.search(r"^(\d+) tests collected", done.stdout, flags=re.M)
    assert match is not None, done.stdout[-4000:]
    return int(match[1])


@pytest.mark.wheel
@pytest.mark.timeout(600)
def test_the_source_distribution_builds_and_its_tests_collect(tmp_path: Path) -> None:
    """As many as in the checkout: nothing that a test imports or reads at collection was left out."""
    pytest.importorskip("hatchling")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=300)
    [archive] = tmp_path.glob("blumfeld-*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    top = tmp_path / archive.name.removesuffix(".tar.gz")
    for name in ("LICENSE", "NOTICE", "CONTRIBUTING.md", "Makefile", ".ci/run", "tools/mutants.py"):
        assert (top / name).is_file(), name
    assert collected(top) == collected(ROOT)


def test_extras_for_users_hold_no_tool_of_developers() -> None:
    """What checks this project's code is in the group ``dev``, which no wheel knows."""
    extras = PROJECT["project"]["optional-dependencies"]
    names = {re.split(r"[\[><=]", need)[0] for needs in extras.values() for need in needs}
    assert names.isdisjoint({"mypy", "ruff", "import-linter", "pytest-xdist", "pytest-timeout"})
    assert {"mypy", "ruff", "import-linter"} <= {
        re.split(r"[\[><=]", need)[0] for need in PROJECT["dependency-groups"]["dev"]
    }


def test_the_demo_needs_one_client_and_no_more() -> None:
    """``make demo`` is a newcomer's first command: it must not fetch 500 MB of tools."""
    assert PROJECT["project"]["optional-dependencies"]["demo"] == ["confluent-kafka>=2.6"]
    [rule] = re.findall(r"^demo: (\S+)", (ROOT / "Makefile").read_text(), flags=re.M)
    assert rule == "$(VENV)/.demo"


def test_what_derives_from_apache_kafka_is_named() -> None:
    """The Apache License asks for it; the file goes into the wheel and the source distribution."""
    assert PROJECT["project"]["license-files"] == ["LICENSE", "NOTICE"]
    notice = (ROOT / "NOTICE").read_text()
    assert "Apache Kafka" in notice
    named = re.findall(r"(?:core|tests|tools)/[\w./]+[\w/]", notice)
    assert named
    for path in named:
        assert (ROOT / path).exists(), path
