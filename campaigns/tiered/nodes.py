"""The nodes of a run: tiered storage in a folder, with short times, and what the store holds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from blumfeld_kit.cluster import Cluster, cluster_of_this_build

MANIFEST = """\
[storage]
plugin = "storage_tiered"

[storage.options]
store = "{store}"
cache_bytes = {cache_bytes}

[storage.options.metadata_topic]
num_partitions = 4

[storage.options.sweep]
interval_ms = 2000
orphan_grace_ms = 1000
copy_grace_ms = 5000

[config]
"remote.log.manager.task.interval.ms" = 200
"log.retention.check.interval.ms" = 300
"log.initial.task.delay.ms" = 100
"""
CACHE_BYTES = 16 << 20


class TieredNodes:
    """A cluster whose topics may be tiered, and its store. Nothing is started yet."""

    def __init__(
        self, folder: Path, nodes: int, store: str = "", more: str = "", settings: Sequence[str] = ()
    ) -> None:
        """:param store: its URL; a folder beside the nodes if none is given
        :param more: further lines of the manifest
        :param settings: ``section.key=value``, laid over the manifest
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.store = folder / "store"
        self.store.mkdir()
        self.manifest = folder / "node.toml"
        text = MANIFEST.format(store=store or f"file://{self.store}", cache_bytes=CACHE_BYTES)
        self.manifest.write_text(text + more)
        self.cluster: Cluster = cluster_of_this_build(nodes, folder, settings, self.manifest)

    def segments_in_pieces(self) -> int:
        """Return how many segments in the store have no manifest: half copied, or half deleted."""
        files = [path for path in self.store.glob("*/*") if path.suffix not in ("", ".json")]
        whole = {path.stem for path in files if path.suffix == ".manifest"}
        return len({path.name.partition(".")[0] for path in files} - whole)

    def verify(self) -> tuple[bool, str]:
        """Run ``blumfeld tiered verify``. Return whether every object is whole and known, and its last lines."""
        command = [sys.executable, "-m", "blumfeld.cli.main", "tiered", "verify", str(self.manifest)]
        command += ["--bootstrap", self.cluster.brokers[0].place.address]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        except subprocess.TimeoutExpired:
            return False, "blumfeld tiered verify took longer than two minutes"
        said = "\n".join((ended.stdout + ended.stderr).splitlines()[-5:])
        return ended.returncode == 0 and "; 0 under way; 0 wrong" in ended.stdout, said
