"""Apache Kafka's own tool reads what storage_local wrote. Skipped where Kafka or Java is not there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from blumfeld.kernel.real_files import RealFiles
from blumfeld.testing.fake_runtime import FakeRuntime
from blumfeld.testing.storage_node import TIME_MS, Node, make_batch
from blumfeld.wire.compression import Codec
from blumfeld_storage_local.storage import LocalStorage
from tests.plugins.test_storage_local import Events
from tests.shared_facts import shared_path

TOOL_TIMEOUT_S = 100


def dump(files: list[Path]) -> str:
    """What ``DumpLogSegments --deep-iteration`` says of these files."""
    if shutil.which("java") is None:
        pytest.skip("no Java here")
    command = [str(shared_path("peer/kafka/kafka-peer")), "tool", "org.apache.kafka.tools.DumpLogSegments"]
    command += ["--deep-iteration", "--files", ",".join(map(str, files))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["clean", "not at all"])
def test_kafkas_dump_tool_has_no_complaint(tmp_path: Path, stop: str) -> None:
    """Log, offset index and time index, sealed and active, after a clean stop and of a node that runs."""
    shared_path("peer/kafka/kafka-peer")
    node = Node(
        lambda _: FakeRuntime(files=RealFiles()), lambda r: LocalStorage(r, str(tmp_path), Events())
    ).start()
    log = node.open(segment_bytes=20_000)
    for n in range(400):
        codec = list(Codec)[n % len(Codec)]
        log.append(
            make_batch(1 + n % 5, value_bytes=100, timestamp_ms=TIME_MS + n * 10, codec=codec, seed=n),
            epoch=3,
        )
    if stop == "clean":
        node.stop()
    files = sorted(
        p for p in (tmp_path / "topic-0").iterdir() if p.suffix in (".log", ".index", ".timeindex")
    )
    said = dump(files)
    assert len(files) >= 5
    assert not re.search(r"(?i)mismatch|invalid|exception|could not|not valid|isvalid: false", said)
    # the tool begins each file at -1, so it calls the first offset of every later segment a gap
    gaps = re.findall(r"(-?\d+) is followed by (\d+)", said)
    assert set(gaps) == {("-1", str(int(f.stem))) for f in files if f.suffix == ".log" and int(f.stem)}
    assert said.count("| offset:") == sum(1 + n % 5 for n in range(400))
    assert said.count("timestamp: ") > 5
    node.end()
