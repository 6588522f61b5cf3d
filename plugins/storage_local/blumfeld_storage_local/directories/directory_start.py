"""Start with several log directories: take those that work, and find the one in which each log lies.

A crash within a move may leave two copies of a log. Marks tell which one counts
(:mod:`blumfeld_storage_local.directories.places`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from blumfeld.log.segments.file_names import DirState, marked_partition_dir, partition_dir
from blumfeld.spi.storage import TopicPartition
from blumfeld_storage_local.directories.directory_logs import DirectoryLogs
from blumfeld_storage_local.directories.places import Copy, MoveEnd, MoveMark, current


class Wanted(msgspec.Struct, frozen=True):
    """A move that a stop or a crash interrupted. It is to begin anew."""

    to: DirectoryLogs
    path: str
    """Path of its ``-future`` directory."""


class Whereabouts(msgspec.Struct):
    """The place of each log, and the moves that are wanted."""

    logs: dict[TopicPartition, DirectoryLogs]
    moves: dict[TopicPartition, Wanted]


def take_all(directories: Sequence[DirectoryLogs], cluster_id: str, node_id: int) -> None:
    """Take every directory. One that can't be used is offline, but the first must work. Blocks, for a short time.

    :raises OSError: the first can't be used (``__cluster_metadata`` lies there), or another process holds one
    :raises ValueError: one belongs to another cluster or node, or two are the same
    """
    for directory in directories:
        try:
            directory.take(cluster_id, node_id)
        except BlockingIOError as error:
            path = directory.home.path
            raise OSError(error.errno, "another process holds the lock of the log directory", path) from error
        except OSError as error:
            if directory is directories[0]:
                raise
            directory.leave()
            directory.home.stay_offline(error)
    seen: dict[bytes, str] = {}
    for directory in directories:
        home = directory.home
        if directory.online:
            other = seen.setdefault(home.directory_id, home.path)
            if other != home.path:
                raise ValueError(
                    f"{other} and {home.path} have the same directory.id in meta.properties: one is a copy"
                )


def previous_broker_epoch(directories: Sequence[DirectoryLogs]) -> int | None:
    """Return the broker epoch in which all were stopped cleanly.

    ``None`` if one directory is offline or names another epoch, as in Kafka (KIP-966).
    """
    epochs = {directory.broker_epoch if directory.online else None for directory in directories}
    return epochs.pop() if len(epochs) == 1 else None


async def find_all(directories: Sequence[DirectoryLogs]) -> Whereabouts:
    """Find where each log lies. Remove copies that don't count, and bring the marks up to date.

    :raises ValueError: a log lies in two directories, and no move can have done that
    """
    online = [directory for directory in directories if directory.online]
    holders: dict[TopicPartition, list[DirectoryLogs]] = {}
    for directory in online:
        for partition in directory.found:
            holders.setdefault(partition, []).append(directory)
    logs = {
        partition: held[0] if len(held) == 1 else _which(partition, held)
        for partition, held in holders.items()
    }
    for partition, held in holders.items():
        for directory in held:
            if directory is not logs[partition]:
                await _remove_copy(directory, partition)
    ids = {directory.home.directory_id for directory in online}
    for directory in online:
        _settle_marks(directory, ids)
        await directory.checkpoints.save_soon()
    return Whereabouts(logs, _wanted(online, logs, all_online=len(online) == len(directories)))


def _which(partition: TopicPartition, held: Sequence[DirectoryLogs]) -> DirectoryLogs:
    copies = [
        Copy(
            directory.home.directory_id,
            f"{directory.home.path}/{partition_dir(partition)}",
            directory.checkpoints.moves.get(partition),
        )
        for directory in held
    ]
    return held[current(partition, copies)]


async def _remove_copy(directory: DirectoryLogs, partition: TopicPartition) -> None:
    """Remove a copy that doesn't count. When this returns its name is gone for good, or the directory is offline.

    The marks must stay until then: without them the next start could not choose.
    """
    home = directory.home
    old = f"{home.path}/{partition_dir(partition)}"
    new = f"{home.path}/{marked_partition_dir(partition, DirState.DELETE, home.runtime.new_uuid())}"
    home.events.info("copy left by a move removed", log=old)

    def rename() -> None:
        home.files.rename(old, new)
        home.files.sync_dir(home.path)

    try:
        await home.runtime.offload(rename)
    except OSError as error:
        home.fail(error)
        return
    directory.found.pop(partition, None)
    directory.clean.pop(partition, None)
    home.remove_later([new], 0, trees=True)


def _settle_marks(directory: DirectoryLogs, online_ids: set[bytes]) -> None:
    """Drop the marks that have served.

    A mark stays while the directory that it names is offline. A copy may come back with it, and is stale then.
    """
    moves = directory.checkpoints.moves
    for partition, mark in list(moves.items()):
        if partition not in directory.found or mark.directory_id in online_ids:
            directory.checkpoints.moves.pop(partition)
        else:
            moves[partition] = MoveMark(mark.directory_id, MoveEnd.GIVEN_UP)


def _wanted(
    online: Sequence[DirectoryLogs], logs: dict[TopicPartition, DirectoryLogs], *, all_online: bool
) -> dict[TopicPartition, Wanted]:
    """Return the moves to begin anew. A copy without its log is removed; one whose log is offline waits."""
    moves: dict[TopicPartition, Wanted] = {}
    for directory in online:
        for partition, path in directory.futures:
            lies = logs.get(partition)
            if lies is None and not all_online:
                continue
            if lies is None or lies is directory or partition in moves:
                directory.home.events.info("copy left by a move removed", log=path)
                directory.home.remove_later([path], 0, trees=True)
            else:
                moves[partition] = Wanted(directory, path)
    return moves
