"""Fetch the Kafka connector that fits pyspark 4.3 into ``~/.m2`` by Maven, for ``--reader jvm``."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence

PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:get"
JARS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
"""The connector and its dependencies, without those that Spark has."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetches the jars one by one. Returns Maven's status of the first that fails, else 0."""
    argparse.ArgumentParser(prog="python -m campaigns archive-jars", description=__doc__).parse_args(
        arguments
    )
    for jar in JARS:
        try:
            status = subprocess.call(["mvn", "-q", PLUGIN, "-Dtransitive=false", f"-Dartifact={jar}"])
        except FileNotFoundError:
            print("archive-jars: Maven (mvn) is not installed", file=sys.stderr)
            return 1
        if status:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
