"""Nodes that tier every topic: their settings, and what they said when they stopped."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import msgspec

from campaigns import ROOT
from campaigns.every_topic_tiered.plugin import RESULT_FILE, Tiered

NAME = "every_topic_tiered"
SEGMENT_BYTES = 64 << 10


def add_tiered_option(parser: argparse.ArgumentParser) -> None:
    """Let a person ask for nodes that tier every topic."""
    parser.add_argument(
        "--tiered",
        type=int,
        nargs="?",
        const=SEGMENT_BYTES,
        metavar="BYTES",
        help=f"tier every topic, at segments of so many bytes ({SEGMENT_BYTES} if not given)",
    )


def tiered_settings(folder: Path, segment_bytes: int) -> tuple[str, ...]:
    """Install the plug-in for all nodes that this process starts, as an installer does. Return the nodes' settings.

    A sealed segment is in the store, which lies in ``folder``, within half a second, and then leaves the disk.
    """
    info = folder / "site" / f"{NAME}-0.1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(
        f"[blumfeld.plugins]\n{NAME} = campaigns.every_topic_tiered.plugin:Plugin\n"
    )
    path = (str(info.parent.resolve()), str(ROOT), os.environ.get("PYTHONPATH", ""))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    return (
        f"storage.plugin={NAME}",
        f'storage.options.store="file://{_store(folder)}"',
        f"storage.options.segment_bytes={segment_bytes}",
        'config."remote.log.manager.task.interval.ms"=200',
        'config."log.local.retention.bytes"=1',
        'config."log.retention.check.interval.ms"=200',
        'config."log.initial.task.delay.ms"=100',
    )


def told(folder: Path) -> str:
    """Return a sentence on the tiering of all nodes below ``folder``. They have stopped."""
    total, nodes = Tiered(), 0
    for path in sorted(folder.rglob(RESULT_FILE)):
        total.add(msgspec.json.decode(path.read_bytes(), type=Tiered))
        nodes += 1
    left = sum(path.stat().st_size for path in _store(folder).rglob("*.log"))
    return (
        f"tiered by {nodes} nodes: {total.copied_segments:,} segments with {total.copied_bytes:,} bytes copied "
        f"({total.copy_errors} errors), {total.remote_reads:,} reads of {total.remote_bytes:,} bytes from remote "
        f"({total.remote_read_errors} errors), {total.deleted_segments:,} segments deleted ({total.delete_errors} "
        f"errors), {left:,} bytes of logs left in the store; {total.partly_remote} of {total.partitions} replicas "
        "began later on the disk than in the log"
    )


def _store(folder: Path) -> Path:
    return folder.resolve() / "store"
