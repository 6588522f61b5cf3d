"""The files of `blumfeld format` are those of Kafka 4.3.1's StorageTool, byte for byte but for times and checksums.

One test has Kafka's bytes as they were captured. The slow ones run the tool.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from blumfeld.cli.app import run_app
from blumfeld.kernel.formatting.directories import FIRST_CHECKPOINT
from blumfeld.kernel.formatting.quorum import in_words
from blumfeld.log.checkpoints import decode_meta_properties
from blumfeld.metadata.image.checkpoint import decode_checkpoint
from blumfeld.wire.batches.control_records import ControlType, build_kraft_control_batch, control_type_of
from blumfeld.wire.batches.record_batch import split_batches
from blumfeld.wire.batches.records import records
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.messages.raft_records import SnapshotHeaderRecord
from blumfeld.wire.primitives import uuid_text
from tests.kafka_peer import TOOL_SECONDS_MAX, peer_script

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
CONTROLLERS = "1@127.0.0.1:23001:JEXY6aqzQY-32P5TStzaFg,2@127.0.0.1:23011:MvDxzVmcRsaTz33bUuRU6A"
KAFKAS_CHECKPOINT = bytes.fromhex(
    "0000000000000000000000ce0000000002155ee78d002000000002000001a20778d92f000001a20778d92fffffffffffffffffffff"
    "ffffffff000000032a0000000800000003160000000001a20778d8b500001e00000208000000050a000000010000ea010000040800"
    "000006d401000003000000012445d8e9aab3418fb7d8fe534adcda16020b434f4e54524f4c4c45520a3132372e302e302e3159d900"
    "0000000100000000000232f0f1cd599c46c693cf7ddb52e454e8020b434f4e54524f4c4c45520a3132372e302e302e3159e3000000"
    "00010000000000000000000000030000003f00000000029328bd29002000000000000001a20778d965000001a20778d965ffffffff"
    "ffffffffffffffffffff000000011a00000008000000040600000000"
)
"""``format --initial-controllers CONTROLLERS``."""
KAFKAS_BOOTSTRAP = bytes.fromhex(
    "0000000000000000000000470000000002db99d60f002000000000000001a207797a67000001a207797a67ffffffffffffffffffff"
    "ffffffff000000012a00000008000000031600000000000000000000000000000000000000010000006a00000000026f6f13e60000"
    "00000001000001a207797aeb000001a207797aebffffffffffffffffffffffffffff000000023a000000012e010c00116d65746164"
    "6174612e76657273696f6e001e0000340000020128010c000e67726f75702e76657273696f6e000100000000000000000003000000"
    "3f00000000022a88167f002000000000000001a207797aec000001a207797aecffffffffffffffffffffffffffff000000011a0000"
    "0008000000040600000000"
)
"""With metadata.version 30 and group.version 1."""
OTHERS = ("eligible.leader.replicas.version", "share.version", "streams.version", "transaction.version")
"""Features that Kafka finalizes by default. This build has some of them."""


def without_times(data: bytes) -> bytes:
    """The checkpoint with every time 0. Batches are checked, and built anew where a record holds a time."""
    made = bytearray()
    for batch in split_batches(memoryview(bytearray(data))):
        batch.verify_crc()
        pairs = (
            [(control_type_of(record.key), record.value or b"") for record in records(batch)]
            if batch.is_control
            else []
        )
        if pairs and pairs[0][0] is ControlType.SNAPSHOT_HEADER:
            header = decode(SnapshotHeaderRecord, pairs[0][1], 0)
            assert header.last_contained_log_timestamp >= 0
            rest = [(kind, value) for kind, value in pairs[1:] if kind is not None]
            header.last_contained_log_timestamp = 0
            made += build_kraft_control_batch(
                [(ControlType.SNAPSHOT_HEADER, encode(header, 0)), *rest],
                timestamp_ms=0,
                base_offset=batch.base_offset,
                leader_epoch=batch.partition_leader_epoch,
            )
            continue
        raw = bytearray(data[len(made) : len(made) + batch.size_bytes])
        raw[17:21] = bytes(4)  # the checksum, which covers the times
        raw[27:43] = bytes(16)
        made += raw
    return bytes(made)


def properties(tmp_path: Path, *lines: str) -> Path:
    """Kafka's configuration of a combined node, without a quorum."""
    path = tmp_path / "server.properties"
    path.write_text(
        "node.id=1\nprocess.roles=broker,controller\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://127.0.0.1:23000,CONTROLLER://127.0.0.1:23001\n"
        f"advertised.listeners=PLAINTEXT://127.0.0.1:23000\nlog.dirs={tmp_path}/kafka\n" + "\n".join(lines)
    )
    return path


def kafka_formats(tmp_path: Path, *arguments: str, config: str = "") -> subprocess.CompletedProcess[str]:
    """Run Kafka's StorageTool on ``tmp_path/kafka``."""
    settings = config or "controller.quorum.bootstrap.servers=127.0.0.1:23001"
    path = properties(tmp_path, settings)
    command = [peer_script(), "tool", "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(path)]
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=TOOL_SECONDS_MAX, check=False
    )


def we_format(tmp_path: Path, *arguments: str, config: str = "") -> int:
    """Run our command on ``tmp_path/ours``."""
    key, _, value = (config or "controller.quorum.bootstrap.servers=127.0.0.1:23001").partition("=")
    return run_app(
        [
            "format",
            *("--cluster-id", CLUSTER, "--data-dir", str(tmp_path / "ours")),
            *("--set", f'config."{key}"="{value}"'),
            *(
                "--set",
                'network.listeners=[{name="PLAINTEXT", bind="127.0.0.1:23000"}, '
                '{name="CONTROLLER", kind="controller", bind="127.0.0.1:23001"}]',
            ),
            *arguments,
        ]
    )


def our_levels(tmp_path: Path) -> dict[str, int]:
    """The feature levels that this build finalizes by default."""
    assert we_format(tmp_path / "default", "--standalone") == 0
    path = tmp_path / "default" / "ours" / "bootstrap.checkpoint"
    return {record.name: record.feature_level for record in decode_checkpoint(path.read_bytes(), "").records}  # type: ignore[attr-defined]


def off(*names: str) -> list[str]:
    """Arguments that leave these features out."""
    return [part for name in names for part in ("--feature", f"{name}=0")]


def test_our_files_are_those_that_kafka_wrote(tmp_path: Path) -> None:
    levels = our_levels(tmp_path)
    ours_too = off(*(name for name in OTHERS if name in levels))
    assert we_format(tmp_path, "--initial-controllers", CONTROLLERS, *ours_too) == 0
    ours = (tmp_path / "ours" / FIRST_CHECKPOINT).read_bytes()
    assert without_times(ours) == without_times(KAFKAS_CHECKPOINT)
    bootstrap = (tmp_path / "ours" / "bootstrap.checkpoint").read_bytes()
    assert without_times(bootstrap) == without_times(KAFKAS_BOOTSTRAP)
    meta = decode_meta_properties((tmp_path / "ours" / "meta.properties").read_bytes())
    assert (meta.cluster_id, uuid_text(meta.directory_id)) == (CLUSTER, "JEXY6aqzQY-32P5TStzaFg")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_standalone_voter_as_kafkas(tmp_path: Path) -> None:
    """The directory id is made anew, so only the rest of the bytes can be the same."""
    done = kafka_formats(tmp_path, "--standalone")
    assert done.returncode == 0, done.stderr
    assert we_format(tmp_path, "--standalone") == 0
    normal = []
    for who in ("kafka", "ours"):
        meta = decode_meta_properties((tmp_path / who / "meta.properties").read_bytes())
        data = (tmp_path / who / FIRST_CHECKPOINT).read_bytes()
        voters = decode_checkpoint(data, who).voters
        assert voters is not None
        assert in_words(voters).startswith("1@127.0.0.1:23001:")
        assert voters.voters[0].voter_directory_id == meta.directory_id
        normal.append(without_times(data).replace(meta.directory_id, bytes(16)))
    heads = [data[:17] + data[21:] for data in normal]  # the checksum covers the directory id
    assert heads[0] == heads[1]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("config", "arguments"),
    [
        ("controller.quorum.voters=1@127.0.0.1:23001", ("--standalone",)),
        ("controller.quorum.bootstrap.servers=127.0.0.1:23001", ()),
        (
            "controller.quorum.bootstrap.servers=127.0.0.1:23001",
            ("--standalone", "--feature", "kraft.version=0"),
        ),
        ("controller.quorum.voters=1@127.0.0.1:23001", ("--feature", "kraft.version=1")),
        ("controller.quorum.voters=2@127.0.0.1:23001", ()),
    ],
)
def test_kafka_refuses_what_we_refuse(tmp_path: Path, config: str, arguments: tuple[str, ...]) -> None:
    assert kafka_formats(tmp_path, *arguments, config=config).returncode != 0
    assert we_format(tmp_path, *arguments, config=config) != 0
