"""``preallocate``: a segment's space is reserved when it begins, and given back when it is sealed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld.testing.embedded import EmbeddedBroker
from blumfeld.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from blumfeld_kit.fakes.disk import Fault
from blumfeld_kit.storage_driver.node import Node, make_batch
from campaigns.raw_connection import RawConnection
from tests.plugins.storage_local.local_node import Events

SEGMENT_BYTES = 2 << 20


@pytest.fixture
def file_path(tmp_path: Path) -> Path:
    """A file on a file system that can reserve space."""
    path = tmp_path / "file"
    file = RealFiles().open(str(path), create=True)
    try:
        file.reserve(4096)
    except OSError as error:
        pytest.skip(f"this file system reserves no space: {error.strerror}")
    finally:
        file.close()
    return path


def allocated_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_space_is_reserved_without_growing_the_file(file_path: Path) -> None:
    file = RealFiles().open(str(file_path), create=True)
    file.pwritev([b"abc"], 0)
    file.reserve(SEGMENT_BYTES)
    assert (file.size(), file.pread(10, 0)) == (3, b"abc")
    assert allocated_bytes(file_path) >= SEGMENT_BYTES
    file.truncate(3)
    assert file.pread(10, 0) == b"abc"
    assert allocated_bytes(file_path) < SEGMENT_BYTES
    file.close()


def test_a_file_that_is_closed_reserves_nothing(file_path: Path) -> None:
    file = RealFiles().open(str(file_path), create=True)
    file.close()
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        file.reserve(SEGMENT_BYTES)


def test_a_brokers_segment_has_its_space_until_it_is_closed(file_path: Path) -> None:
    """By the broker's key and by the topic's; a topic without either has none."""
    config = {"log.preallocate": True, "log.segment.bytes": SEGMENT_BYTES}
    with EmbeddedBroker(
        config=config, storage="storage_local", data_dir=str(file_path.parent / "d")
    ) as broker:
        topics = [
            CreatableTopic(name="given", num_partitions=1, replication_factor=1),
            CreatableTopic(
                name="off",
                num_partitions=1,
                replication_factor=1,
                configs=[CreatableTopicConfig(name="preallocate", value="false")],
            ),
        ]
        with RawConnection(broker.bootstrap_servers) as connection:
            connection.ask(CreateTopicsRequest(topics=topics), 5, CreateTopicsResponse)
        given, off = (
            Path(broker.data_dir) / f"{name}-0" / "00000000000000000000.log" for name in ("given", "off")
        )
        assert (given.stat().st_size, off.stat().st_size) == (0, 0)
        assert allocated_bytes(given) >= SEGMENT_BYTES
        assert allocated_bytes(off) == 0
    assert allocated_bytes(given) == 0


def test_each_new_segment_is_reserved_and_each_sealed_one_cut(node: Node) -> None:
    log = node.open(preallocate="true", segment_bytes=SEGMENT_BYTES)
    log.append(make_batch(3))
    operations = node.runtime.disk.operations
    assert operations["reserve"] == 1
    cuts = operations.get("truncate", 0)
    log.roll()
    assert (operations["reserve"], operations["truncate"]) == (2, cuts + 1)
    node.stop()
    assert operations["truncate"] == cuts + 2
    again = node.restart().open(preallocate="false")
    assert again.log.written_end_offset == 3
    assert operations["reserve"] == 2


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EOPNOTSUPP])
def test_a_log_goes_on_without_space_that_is_not_there(node: Node, events: Events, number: int) -> None:
    """And says so once for the directory, not once for each log."""
    node.runtime.disk.inject(Fault(operation="reserve", times=9, error_number=number))
    log = node.open(preallocate="true")
    log.append(make_batch(3))
    log.roll()
    log.append(make_batch(2))
    assert log.log.written_end_offset == 5
    assert events.said.count("no space reserved for a segment") == 1


def test_a_disk_that_is_bad_goes_offline(node: Node) -> None:
    node.runtime.disk.inject(Fault(operation="reserve", error_number=errno.EIO))
    node.open(preallocate="true")
    node.runtime.advance(1)
    assert not node.storage.log_dirs()[0].online
