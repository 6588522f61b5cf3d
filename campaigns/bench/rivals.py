"""The servers that are measured beside each other: this build, Apache Kafka by its start script, bare servers."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from blumfeld_bench.plan.variants import MANIFEST_FILE, VariantSpec, parse_variant
from blumfeld_bench.runs.servers import Server, start_server

KAFKA_WARM_UP_S = 25.0
"""Seconds of load before Kafka is measured. Without it Kafka reaches a sixth of its warm rate: its JIT compiles."""
PAGE_CACHE = "--durability 'page cache'"


def this_build(settings: Sequence[str] = (), label: str = "blumfeld") -> VariantSpec:
    """Return the broker of this checkout with its built-in manifest and ``section.key=value`` laid over it."""
    words = [word for setting in settings for word in ("--set", setting)]
    return parse_variant(shlex.join(["default", "--label", label, *words]))


def kafka_text(
    peer: Path,
    words: str = "",
    *,
    label: str = "kafka",
    version: str = "",
    warm_up_s: float = KAFKA_WARM_UP_S,
    nodes: int = 1,
    tiered: bool = False,
) -> str:
    """Return Apache Kafka as ``blumfeld bench`` takes it.

    :param words: put behind the start command: ``key=value`` of its configuration
    :param version: the release; empty for the script's own choice
    :param tiered: with Kafka's LocalTieredStorage as its remote store
    """
    start = f"{shlex.quote(str(peer))} start {{folder}}/data {{port}} {words}".strip()
    variables = [f"KAFKA_PEER_VERSION={version}"] * bool(version) + ["KAFKA_PEER_TIERED=1"] * tiered
    start = " ".join(["env", *variables, start]) if variables else start
    text = f"kafka://127.0.0.1:0 --start {shlex.quote(start)} --warm-up {warm_up_s:g} --label {shlex.quote(label)}"
    return f"{text} --nodes {nodes}" if nodes > 1 else text


def kafka(peer: Path, words: str = "") -> VariantSpec:
    """Return Apache Kafka."""
    return parse_variant(f"{kafka_text(peer, words)} {PAGE_CACHE}")


def floor(script: Path) -> VariantSpec:
    """Return a bare server: it cuts frames, checks the CRC, writes the batch and answers. It has the topic from the
    start, and may answer nothing but Produce."""
    start = shlex.join([sys.executable, str(script), "{port}"])
    text = f"kafka://127.0.0.1:0 --start {shlex.quote(start)} --warm-up 1 --label {script.stem} {PAGE_CACHE}"
    return parse_variant(text)


def rivals(peer: Path | None) -> list[VariantSpec]:
    """Return this build, and Kafka where its script is given."""
    return [this_build(), *([kafka(peer.resolve())] if peer else [])]


def start(
    spec: VariantSpec, folder: Path, *, data: Path | None = None, port: int = 0, bare: bool = False
) -> Server:
    """Start a rival; return when it answers ApiVersions, or listens if it is ``bare``.

    :param data: its data directory; below ``folder`` if not given
    :raises ServerError: it did not start
    """
    variant = spec.variant
    command = [part.replace("{folder}/data", str(data or "{folder}/data")) for part in variant.command]
    files = {} if variant.manifest is None else {MANIFEST_FILE: variant.manifest}
    return start_server(spec.label, command, folder, port=port, files=files, bare=bare)
