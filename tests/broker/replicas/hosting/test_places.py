"""In which log directory a log is made: the controller's word, a client's wish, and what may be offline (KIP-858)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from blumfeld.broker.replicas.hosting.places import Places
from blumfeld.metadata.partitions.directories import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from blumfeld.spi.cluster import PartitionImage
from blumfeld.spi.storage import LogStorage, TopicPartition
from tests.broker.harness import partition_image
from tests.broker.plain_storage import PlainStorage

A, B, GONE = b"a" * 16, b"b" * 16, b"g" * 16
AT = TopicPartition("t", 0)
RESERVED = [UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY, LOST_DIRECTORY]


class Found(PlainStorage):
    """Two directories, in one of which a log was found."""

    def __init__(self, *found: TopicPartition) -> None:
        super().__init__(("/m/a", "/m/b"))
        self.found = found

    def partitions(self) -> Sequence[tuple[TopicPartition, bytes]]:
        return [(partition, bytes(16)) for partition in self.found]


def image(*directories: bytes) -> PartitionImage:
    return partition_image(replicas=(2, 1), isr=(1,), directories=directories)


def places(*found: TopicPartition, offline: str = "", preferred: bytes | None = None) -> Places:
    storage = Found(*found)
    made = Places(cast("LogStorage", storage), 1, {} if preferred is None else {AT: preferred})
    made.start()
    if offline:
        storage.fail_directory(offline)
        made.changed()
    return made


def test_a_log_is_made_where_the_controller_has_it() -> None:
    assert places().of(AT, image(A, B)) == B
    assert places(offline="/m/a").of(AT, image(A, B)) == B


@pytest.mark.parametrize("assigned", [*RESERVED, GONE])
def test_without_a_directory_of_ours_the_storage_chooses(assigned: bytes) -> None:
    """With all online: a directory that is not known any more was replaced."""
    assert places().of(AT, image(A, assigned)) is None
    assert places().of(AT, image()) is None


@pytest.mark.parametrize("assigned", [B, GONE, LOST_DIRECTORY, MIGRATING_DIRECTORY])
def test_what_may_lie_in_an_offline_directory_is_not_made_anew(assigned: bytes) -> None:
    with pytest.raises(OSError, match="its log directory is offline: '/m/b'"):
        places(offline="/m/b").of(AT, image(A, assigned))


def test_what_was_never_placed_is_made_in_what_is_online() -> None:
    assert places(offline="/m/b").of(AT, image(A, UNASSIGNED_DIRECTORY)) is None


def test_a_log_that_was_found_is_opened_where_nobody_wrote_down_where_it_lies() -> None:
    assert places(AT, offline="/m/b").of(AT, image(A, MIGRATING_DIRECTORY)) is None
    with pytest.raises(OSError, match="offline"):
        places(AT, offline="/m/b").of(AT, image(A, B))  # what was found is older than what is in B


def test_a_wish_counts_before_the_controllers_word_while_it_can_be_met() -> None:
    assert places(preferred=A).of(AT, image(B, B)) == A
    assert places(preferred=A).of(AT, image(B, UNASSIGNED_DIRECTORY)) == A
    assert places(preferred=A, offline="/m/a").of(AT, image(B, B)) == B
    assert places(preferred=A).of(TopicPartition("t", 1), image(B, B)) == B
