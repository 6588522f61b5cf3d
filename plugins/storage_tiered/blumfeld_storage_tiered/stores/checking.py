"""The check of a store, before a node uses it: it can be written, read and deleted, and it is this cluster's own."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

import msgspec

from blumfeld.spi.object_store import (
    ObjectExistsError,
    ObjectNotFoundError,
    ObjectStore,
    StoreError,
    StoreMisconfiguredError,
    StoreUnavailableError,
)
from blumfeld.spi.runtime import Runtime
from blumfeld.wire.primitives import uuid_text

T = TypeVar("T")

MARKER = "blumfeld-cluster.json"
"""The object that says to which cluster a bucket, or a prefix of one, belongs."""
LAYOUT_VERSION = 1
"""The version of names and manifests. It changes when an older build would read them wrong."""
MARKER_BYTES_MAX = 4096


class Marker(msgspec.Struct, frozen=True):
    """The content of :data:`MARKER`."""

    cluster_id: str
    layout_version: int


async def check_store(
    runtime: Runtime, store: ObjectStore, cluster_id: str, shown: str, *, may_be_new: bool = True
) -> None:
    """Claim the store for this cluster, and try what a node does with it.

    The first node of a cluster writes the marker; a conditional put decides between two.

    :param shown: the store for people, ``shown_url``'s
    :param may_be_new: a store without a marker is taken. Not where it had one before: it isn't mounted, or was emptied
    :raises StoreMisconfiguredError: it belongs to another cluster, or has a layout that this build doesn't know, or
        gives back something else than was put. No later check succeeds before somebody changes something
    :raises StoreDeniedError: the credentials don't allow it
    :raises StoreUnavailableError: it can't be reached now. A node that already serves may try again later
    """
    if not may_be_new:
        await check_marker(store, shown)
    await _claim(store, cluster_id, shown)
    await _probe(store, f"blumfeld-probe-{uuid_text(runtime.new_uuid())}", shown)


async def check_marker(store: ObjectStore, shown: str) -> None:
    """Look whether the marker is there.

    :raises StoreUnavailableError: it isn't: a folder isn't mounted, or somebody has emptied the store
    """
    try:
        await store.head(MARKER)
    except ObjectNotFoundError:
        allowed = "the store that this node has used, with its marker: mount it, or put the marker back"
        raise StoreUnavailableError(f"{shown}: found no {MARKER}; allowed: {allowed}") from None


async def _claim(store: ObjectStore, cluster_id: str, shown: str) -> None:
    marker = Marker(cluster_id, LAYOUT_VERSION)
    try:
        await _step("written", store.put(MARKER, msgspec.json.encode(marker), if_absent=True), shown)
    except ObjectExistsError:  # ours, if only the answer to a put was lost
        content = await _step("read", store.get_range(MARKER, 0, MARKER_BYTES_MAX), shown)
        _compare(bytes(content), marker, shown)


def _compare(data: bytes, ours: Marker, shown: str) -> None:
    try:
        marker = msgspec.json.decode(data, type=Marker)
    except (msgspec.DecodeError, msgspec.ValidationError):
        mistake = f"{data[:60]!r}; allowed: a marker of a cluster. Somebody else has written it: take another prefix"
        raise StoreMisconfiguredError(f"{MARKER} in {shown}: found {mistake}") from None
    if marker.cluster_id != ours.cluster_id:
        raise StoreMisconfiguredError(
            f"{shown} belongs to another cluster: found cluster id {marker.cluster_id}; allowed: {ours.cluster_id},"
            " this cluster's. Take another bucket or prefix. If these disks are new because those of that cluster are"
            " gone: empty the data directories, and run `blumfeld tiered restore`"
        )
    if marker.layout_version > ours.layout_version:
        raise StoreMisconfiguredError(
            f"{shown} was written by a newer build: found layout version {marker.layout_version}; allowed: up to"
            f" {ours.layout_version}. Take the build that wrote it, or a newer one"
        )


async def _probe(store: ObjectStore, key: str, shown: str) -> None:
    """Write, read and delete a small object."""
    data = key.encode()
    await _step("written", store.put(key, data), shown)
    content = bytes(await _step("read", store.get_range(key, 0, len(data) + 1), shown))
    await _step("deleted", store.delete(key), shown)
    if content != data:
        text = (
            f"found {content[:60]!r}; allowed: the {len(data)} bytes that were put. "
            "It isn't a store that can be used"
        )
        raise StoreMisconfiguredError(f"{shown} gives back something else than was put: {text}")


async def _step(done: str, request: Awaitable[T], shown: str) -> T:
    try:
        return await request
    except (ObjectExistsError, StoreUnavailableError):
        raise
    except StoreError as error:
        allowed = "a place where this node may write, read, list and delete"
        raise type(error)(f"{shown} can't be {done}: found {error}; allowed: {allowed}") from None
