"""Finds the jars of Spark's Kafka connector on this machine and chooses the set that fits this pyspark.

Nothing is downloaded. The connector is four jars beside those of pyspark; docs/archive.md says how to get them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import attrs

from blumfeld_sink_spark.errors import SettingsError
from blumfeld_sink_spark.spark.runtime.java import cache_folder

CONNECTOR, TOKENS = "spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13"
CLIENTS, POOL = "kafka-clients", "commons-pool2"
NEEDED = (CONNECTOR, TOKENS, CLIENTS, POOL)

Version = tuple[int, ...]

_NAME = re.compile(rf"(?:^|_)(?P<artefact>{'|'.join(map(re.escape, NEEDED))})-(?P<version>\d[\w.\-]*)\.jar$")
"""Ivy writes ``ORGANISATION_`` before a jar's own name."""


@attrs.frozen
class Jars:
    """The four jars of a connector."""

    paths: tuple[str, ...]
    versions: Mapping[str, str]
    """Version by artefact."""
    origin: str
    """The place they were found in, for people."""

    @property
    def connector(self) -> str:
        """The connector's version."""
        return self.versions[CONNECTOR]


def find_jars(
    folder: str, pyspark: str, environment: Mapping[str, str] | None = None, home: Path | None = None
) -> Jars | None:
    """Returns the jars of the first place that has a set.

    The places are ``folder`` alone if it is given, else ``$BLUMFELD_SPARK_JARS``, the cache, Maven's and Ivy's.
    A set has a connector of pyspark's own minor release or the one before it: older ones miss methods that streaming
    calls. Only a streaming query shows whether the set really works (``archive doctor`` runs one).

    :raises SettingsError: ``folder`` is given and has no such set
    """
    environment = os.environ if environment is None else environment
    for origin, jars in _places(folder, environment, home or Path.home()):
        jar_set = choose(jars, pyspark, origin)
        if jar_set is not None:
            return jar_set
        if origin == folder:
            raise SettingsError(
                f"archive.jars: {folder} has no connector that fits pyspark {pyspark}; "
                f"needed: {', '.join(f'{name}-VERSION.jar' for name in NEEDED)}"
            )
    return None


def choose(jars: Iterable[Path], pyspark: str, origin: str = "") -> Jars | None:
    """Chooses the newest connector that isn't newer than pyspark, the newest 3.x of kafka-clients (else its newest),
    and the newest of the other two. ``None`` if one of the four is missing.
    """
    by_artefact: dict[str, dict[Version, Path]] = {name: {} for name in NEEDED}
    for jar in sorted(jars):
        match = _NAME.search(jar.name)
        if match:
            by_artefact[match["artefact"]][version(match["version"])] = jar
    fitting = {key: jar for key, jar in by_artefact[CONNECTOR].items() if fits(key, version(pyspark))}
    rest = [by_artefact[name] for name in NEEDED[1:]]
    if not fitting or not all(rest):
        return None
    tokens, clients, pools = rest
    old_clients = {key: jar for key, jar in clients.items() if key[0] < 4}
    chosen = [_newest(each) for each in (fitting, tokens, old_clients or clients, pools)]
    names = [_NAME.search(jar.name) for jar in chosen]
    return Jars(
        paths=tuple(str(jar) for jar in chosen),
        versions={name["artefact"]: name["version"] for name in names if name},
        origin=origin,
    )


def fits(connector: Version, pyspark: Version) -> bool:
    """Returns whether a connector may work with this pyspark: same minor release, or the one before it."""
    return connector[0] == pyspark[0] and 0 <= pyspark[1] - connector[1] <= 1


def version(text: str) -> Version:
    """Returns a version as numbers that compare (``4.1.0-preview1`` is before ``4.1.0``)."""
    numbers = [int(part) for part in re.split(r"[.\-]", text) if part.isdigit()][:3]
    numbers += [0] * (3 - len(numbers))
    return (*numbers, 0 if "preview" in text or "rc" in text.lower() else 1)


def _newest(jars: Mapping[Version, Path]) -> Path:
    return jars[max(jars)]


def _places(folder: str, environment: Mapping[str, str], home: Path) -> Iterable[tuple[str, list[Path]]]:
    if folder:
        yield folder, list(Path(folder).glob("*.jar"))
        return
    given = environment.get("BLUMFELD_SPARK_JARS", "")
    if given:
        yield "$BLUMFELD_SPARK_JARS", list(Path(given).glob("*.jar"))
    yield "the cache", list((cache_folder(environment) / "jars").glob("*.jar"))
    maven = home / ".m2" / "repository"
    roots = [
        maven / "org" / "apache" / "spark" / CONNECTOR,
        maven / "org" / "apache" / "spark" / TOKENS,
        maven / "org" / "apache" / "kafka" / CLIENTS,
        maven / "org" / "apache" / "commons" / POOL,
    ]
    yield "~/.m2", [jar for root in roots for jar in root.glob("*/*.jar")]
    yield "~/.ivy2", [jar for root in home.glob(".ivy2*") for jar in (root / "jars").glob("*.jar")]
