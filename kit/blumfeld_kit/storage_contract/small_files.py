"""The part of the storage contract about the small files beside a log, and about larger ones that move by chunks."""

from __future__ import annotations

import errno
from random import Random

import pytest

from blumfeld.spi.aux_files import AuxDraft, ChunkedAuxFiles, in_chunks
from blumfeld_kit.fakes.files import Adversary, Fault
from blumfeld_kit.storage_contract.kit import ANY, StorageKit
from blumfeld_kit.storage_driver.node import Log, Node

CHUNKS = tuple(bytes([at]) * (1 + 37 * at) for at in range(12))
WHOLE = b"".join(CHUNKS)
NAME = "00000000000000000012-0000000003.checkpoint"


class StorageSmallFiles(StorageKit):
    """The part about small files of ``StorageContract``."""

    def test_small_files_beside_the_log(self, node: Node, log: Log) -> None:
        """A small file is written whole, listed and deleted. The log's own files are not in the list."""
        aux = log.log.aux
        before = aux.names()
        assert aux.read("leader-epoch-checkpoint") is None
        aux.write("leader-epoch-checkpoint", b"0\n0\n")
        aux.write("00000000000000000005.snapshot", b"one")
        aux.write("00000000000000000005.snapshot", b"two")
        log.fill(1)
        log.roll()
        names = {*before, "00000000000000000005.snapshot", "leader-epoch-checkpoint"}
        assert aux.names() == sorted(names)
        assert aux.read("00000000000000000005.snapshot") == b"two"
        aux.write_unsynced("00000000000000000005.snapshot", b"3")
        assert (aux.names(), aux.read("00000000000000000005.snapshot")) == (sorted(names), b"3")
        aux.delete("00000000000000000005.snapshot")
        aux.delete("00000000000000000005.snapshot")
        assert aux.read("00000000000000000005.snapshot") is None

    def test_small_files_can_be_used_while_the_log_is_closed(self, node: Node, log: Log) -> None:
        """A voter keeps its vote while its log is being opened again."""
        aux = log.log.aux
        aux.write("quorum-state", b"one")
        log.log.close()
        assert aux.read("quorum-state") == b"one"
        aux.write("quorum-state", b"two")
        assert node.open().log.aux.read("quorum-state") == b"two"

    @pytest.mark.parametrize("cut", list(Adversary), ids=lambda cut: cut.name.lower())
    @pytest.mark.parametrize("stops", [False, True])
    def test_a_flush_makes_an_unsynced_file_last(self, node: Node, cut: Adversary, stops: bool) -> None:
        """A kill leaves it whole at once; a power cut behind the log's next flush, or behind a clean stop."""
        self.need_crash(node)
        log = node.open()
        log.fill(1)
        log.flush()
        log.log.aux.write_unsynced("one", b"a longer one, which came before")
        log.log.aux.write_unsynced("one", b"1")
        log = node.crash(power_cut=False).open()
        assert log.log.aux.read("one") == b"1"
        log.log.aux.write_unsynced("one", b"2")
        log.log.aux.write_unsynced("two", b"gone before the flush")
        log.log.aux.delete("two")
        if stops:
            node.stop()
            node.restart()
            log = node.open()
        else:
            log.flush()
        assert node.crash(luck=cut).open().log.aux.read("one") == b"2"

    def test_a_file_that_arrives_in_chunks_is_seen_when_it_is_whole(self, log: Log) -> None:
        """Nobody sees a draft. Its commit replaces the file in one step, and the file is read in pieces of any size."""
        aux = in_chunks(log.log.aux)
        before = aux.names()
        assert (aux.size(NAME), aux.read_at(NAME, 0, 10)) == (None, None)
        aux.write(NAME, b"old")
        draft = aux.begin(NAME)
        for at, chunk in enumerate(CHUNKS):
            draft.append(memoryview(chunk))
            if at == 5:
                draft.flush()
        assert draft.size_bytes == len(WHOLE)
        assert aux.read(NAME) == b"old"
        assert aux.names() == sorted([*before, NAME])
        draft.commit()
        assert aux.read(NAME) == WHOLE
        assert aux.size(NAME) == len(WHOLE)
        assert aux.names() == sorted([*before, NAME])
        for size in (1, 100, 1_000, 1 << 20):
            pieces = [aux.read_at(NAME, position, size) for position in range(0, len(WHOLE), size)]
            assert b"".join(piece or b"" for piece in pieces) == WHOLE
        assert aux.read_at(NAME, len(WHOLE), 10) == b""
        assert aux.read_at(NAME, len(WHOLE) - 3, 10) == WHOLE[-3:]
        aux.delete(NAME)
        assert (aux.size(NAME), aux.names()) == (None, before)

    def test_an_aborted_draft_leaves_nothing(self, log: Log) -> None:
        """A draft that was aborted, or that another draft of its name took the place of, takes no more bytes."""
        aux = in_chunks(log.log.aux)
        before = aux.names()
        first = aux.begin(NAME)
        first.append(b"first")
        second = aux.begin(NAME)
        second.append(b"second")
        with pytest.raises(ValueError, match=ANY):
            first.append(b"x")
        with pytest.raises(ValueError, match=ANY):
            first.flush()
        with pytest.raises(ValueError, match=ANY):
            first.commit()
        second.abort()
        second.abort()
        with pytest.raises(ValueError, match=ANY):
            second.append(b"x")
        assert aux.names() == before
        third = aux.begin(NAME)
        third.append(b"third")
        third.commit()
        with pytest.raises(ValueError, match=ANY):
            third.commit()
        third.abort()
        first.abort()
        assert aux.read(NAME) == b"third"

    def test_an_empty_draft_is_an_empty_file(self, log: Log) -> None:
        """A file needs no bytes."""
        aux = in_chunks(log.log.aux)
        aux.begin(NAME).commit()
        assert (aux.read(NAME), aux.size(NAME), aux.read_at(NAME, 0, 5)) == (b"", 0, b"")

    @pytest.mark.parametrize("cut", list(Adversary), ids=lambda cut: cut.name.lower())
    def test_a_committed_file_survives_a_power_cut(self, node: Node, cut: Adversary) -> None:
        """A file that was committed is there, whole. Of a draft nothing is left, and its name can be begun anew."""
        self.need_crash(node)
        log = node.open()
        log.fill(1)
        aux = in_chunks(log.log.aux)
        # A log's directory need not last before its first flush: the file can't last longer than that.
        log.flush()
        draft = aux.begin(NAME)
        for chunk in CHUNKS:
            draft.append(chunk)
        draft.commit()
        other = aux.begin("other")
        other.append(b"half")
        other.flush()
        aux = in_chunks(node.crash(luck=cut).open().log.aux)
        assert aux.read(NAME) == WHOLE
        assert aux.read("other") is None
        assert "other" not in " ".join(aux.names())
        again = aux.begin("other")
        again.append(b"whole")
        again.commit()
        assert aux.read("other") == b"whole"

    @pytest.mark.parametrize("cut", list(Adversary), ids=lambda cut: cut.name.lower())
    def test_a_flushed_draft_is_put_in_its_place_without_a_sync(self, node: Node, cut: Adversary) -> None:
        """It is seen at once, and there for good once it is settled."""
        self.need_crash(node)
        aux, draft = _drafted(node)
        draft.flush()
        watched: list[str] = []
        node.runtime.disk.watch = lambda operation, _: watched.append(operation)
        draft.put()
        node.runtime.disk.watch = None
        assert aux.read(NAME) == WHOLE
        assert not {"fdatasync", "sync_dir"}.intersection(watched)
        with pytest.raises(ValueError, match=ANY):
            draft.put()
        draft.abort()
        draft.settle()
        assert node.crash(luck=cut).open().log.aux.read(NAME) == WHOLE

    def test_a_power_cut_within_a_commit_leaves_the_old_file_or_the_new_one(self, node: Node) -> None:
        """Never a part of the new one, wherever it comes."""
        self.need_crash(node)
        file_contents: set[bytes | None] = set()
        for at in range(1, 12):
            for cut in (*Adversary, Random(at)):
                crashing = Node(self.make_runtime, self.make_storage).start()
                ended = _commit_until(crashing, at, cut)
                again = (crashing.crash(luck=cut) if ended else crashing.restart()).open().log.aux
                data = again.read(NAME)
                assert data == WHOLE if ended else data in (b"old", WHOLE)
                file_contents.add(data)
                crashing.end()
        assert file_contents == {b"old", WHOLE}

    def test_a_full_disk_costs_a_draft_its_chunk(self, node: Node, log: Log) -> None:
        """A chunk that doesn't fit is not counted, also if a part of it was written. With room again it goes on."""
        self.need_simulated_disk(node)
        aux = in_chunks(log.log.aux)
        draft = aux.begin(NAME)
        draft.append(b"first")
        disk = node.runtime.disk
        fault = Fault(operation="pwritev", short_bytes=2, path_part=NAME)
        disk.inject(fault)
        disk.inject(Fault(operation="pwritev", error_number=errno.ENOSPC, path_part=NAME))
        before = disk.struck
        try:
            draft.append(b"second")
        except OSError:
            draft.append(b"second")
        struck = disk.struck - before
        disk.heal()
        draft.append(b"third")
        draft.commit()
        assert aux.read(NAME) == b"firstsecondthird"
        assert struck in (0, 2)


def _drafted(node: Node) -> tuple[ChunkedAuxFiles, AuxDraft]:
    """Return a file that has old bytes in a log that lasts, and a draft of chunks in its place."""
    log = node.open()
    log.fill(1)
    log.flush()
    aux = in_chunks(log.log.aux)
    aux.write(NAME, b"old")
    draft = aux.begin(NAME)
    draft.append(WHOLE)
    return aux, draft


def _commit_until(node: Node, at: int, cut: Adversary | Random) -> bool:
    """Commit a file of chunks in the place of an old one. The power is cut before the ``at``-th operation of the
    commit. Return whether the commit came to its end.
    """
    _, draft = _drafted(node)
    runtime, left = node.runtime, at

    def watch(operation: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            runtime.crash(luck=cut)

    runtime.disk.watch = watch
    try:
        draft.commit()
    except OSError:
        assert runtime.dead
    runtime.disk.watch = None
    return not runtime.dead
