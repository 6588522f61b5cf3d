"""The store that a manifest names, opened for a command, and the edge of every command."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
import typer

from blumfeld.client.errors import NoCommonVersionError, NotSecuredError, NotServedError, RefusedError
from blumfeld.client.security.command_config import CommandConfigError, client_security
from blumfeld.config.addresses import host_and_port
from blumfeld.plugging.errors import ManifestError, Problem, file_problem
from blumfeld.plugging.sections import decode_section, read_section
from blumfeld.spi.object_store import ObjectNotFoundError, ObjectStore, StoreError
from blumfeld.spi.runtime import Files, Runtime
from blumfeld.wire.errors import PluginContractError
from blumfeld.wire.primitives import DecodeError
from blumfeld_storage_tiered.care.cluster import RunningCluster
from blumfeld_storage_tiered.options import Options
from blumfeld_storage_tiered.stores.checking import MARKER, MARKER_BYTES_MAX, Marker
from blumfeld_storage_tiered.stores.opening import AT, open_store
from blumfeld_storage_tiered.stores.urls import StoreRefusedError, parse_url, shown_url

T = TypeVar("T")

FAILED, BAD_MANIFEST = 1, 2
"""Exit statuses beside 0. A store or a broker that can't be asked ends with ``BAD_MANIFEST``, too: nothing is said of
the segments."""
PLUGIN = "storage_tiered"
LOCAL = "storage_local"
USED = "the store of a node that has started once"
FAILURES = (
    CommandConfigError,
    ManifestError,
    PluginContractError,
    StoreError,
    OSError,
    RefusedError,
    NoCommonVersionError,
    DecodeError,
)
"""The errors that end a command with a line."""


class _StorageSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    plugin: str = "storage_local"
    options: dict[str, Any] = {}
    local_options: dict[str, Any] = {}


class OpenedStore(NamedTuple):
    """A store and what was learned of it at once."""

    store: ObjectStore
    runtime: Runtime
    options: Options
    shown: str
    """Its URL for people."""
    cluster_id: str
    """The cluster that it belongs to."""


class _CommandRuntime:
    """As much of a runtime as the reading of a store needs."""

    def __init__(self, files: Files) -> None:
        self.files = files

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def offload(self, work: Callable[..., T], *args: Any) -> Coroutine[Any, Any, T]:
        return asyncio.to_thread(work, *args)


def manifest_text(path: str) -> str:
    """Return the text of a manifest.

    :raises ManifestError: the file can't be read
    """
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(path, [file_problem(error)]) from None


def options_of(path: str) -> Options:
    """Return the options of the tiered storage in a manifest.

    :raises ManifestError: the file can't be read, is no manifest, or names another storage
    """
    return decode_section(_storage(path).options, Options, path, "storage.options")


def _storage(path: str) -> _StorageSection:
    section = read_section(manifest_text(path), "storage", _StorageSection, path, {})
    if section.plugin != PLUGIN:
        raise ManifestError(path, [Problem("storage.plugin", f'"{section.plugin}"', f'"{PLUGIN}"')])
    return section


def same_store(paths: Sequence[str]) -> None:
    """Check that the nodes of these manifests share a store and a metadata topic, and keep their logs where a restore
    can write them.

    :raises ManifestError: they don't
    """
    first = options_of(paths[0])
    for path in paths:
        options = options_of(path)
        if options.local != LOCAL:
            allowed = f'"{LOCAL}": a restore writes its files'
            raise ManifestError(path, [Problem("storage.options.local", f'"{options.local}"', allowed)])
        if (options.store, options.metadata_topic) != (first.store, first.metadata_topic):
            mistake = f"{shown_url(options.store)}, or another metadata_topic"
            raise ManifestError(path, [Problem(AT, mistake, f"as in {paths[0]}: {shown_url(first.store)}")])


@asynccontextmanager
async def opened_store(files: Files, path: str) -> AsyncIterator[OpenedStore]:
    """Open the store that a manifest names, and read to which cluster it belongs. Nothing is written.

    :raises ManifestError: it can't be opened, or no cluster has used it: a mistake in its URL would look like an empty
        store, in which nothing is wrong
    """
    options = options_of(path)
    runtime = cast("Runtime", _CommandRuntime(files))
    try:
        shown, place = shown_url(options.store), parse_url(options.store)
        if place.scheme == "file" and not os.path.isdir(place.prefix):
            raise StoreRefusedError(AT, f"{shown}, a folder that isn't there", USED)
        store = open_store(options.store, runtime, options.of_store(), {})
    except StoreRefusedError as error:
        raise ManifestError(path, [Problem(error.path, error.found, error.allowed)]) from None
    try:
        cluster_id = await _cluster_id(store)
        if cluster_id is None:
            raise ManifestError(
                path, [Problem(AT, f"{shown}, without a {MARKER} that names a cluster", USED)]
            )
        yield OpenedStore(store, runtime, options, shown, cluster_id)
    finally:
        await store.close()


async def _cluster_id(store: ObjectStore) -> str | None:
    try:
        data = await store.get_range(MARKER, 0, MARKER_BYTES_MAX)
    except ObjectNotFoundError:
        return None
    try:
        return msgspec.json.decode(data, type=Marker).cluster_id
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


def asked_cluster(
    files: Files, bootstrap: str | None, command_config: str | None, opened: OpenedStore
) -> RunningCluster | None:
    """Connect to a cluster, which must be the store's. Without ``--bootstrap`` there is none.

    :param command_config: the file of the option
    :raises OSError: it can't be reached, doesn't let this client in, or is another one
    :raises CommandConfigError: the file can't be used
    """
    if bootstrap is None:
        if command_config is not None:
            raise OSError(
                "--command-config: found it without --bootstrap; allowed: with a broker that is asked"
            )
        return None
    security = client_security(command_config, files, lambda line: typer.echo(f"blumfeld: {line}", err=True))
    try:
        host, port = host_and_port(bootstrap)
    except ValueError:
        raise OSError(f"--bootstrap: found {bootstrap!r}; allowed: HOST:PORT") from None
    try:
        cluster = RunningCluster(host, port, security)
    except (NotSecuredError, NotServedError) as error:
        raise OSError(f"--bootstrap: {error}") from None
    except OSError as error:
        raise OSError(f"--bootstrap: {bootstrap} doesn't answer: {error.strerror or error}") from None
    if cluster.cluster_id != opened.cluster_id:
        cluster.close()
        raise OSError(
            f"--bootstrap: found {bootstrap} of the cluster {cluster.cluster_id}; allowed: a broker of"
            f" {opened.cluster_id}, to which {opened.shown} belongs"
        )
    return cluster


def run(work: Coroutine[Any, Any, int]) -> None:
    """Run a command to its exit status. Its errors become a line each.

    The process ends at once then. obstore's threads may still drop what belongs to the interpreter; while that shuts
    down, one of them would abort the process, and every tenth command ended with 134.
    """
    try:
        status = asyncio.run(work)
    except FAILURES as error:
        for line in str(error).splitlines():
            typer.echo(f"blumfeld: {line}", err=True)
        status = BAD_MANIFEST
    sys.stdout.flush()
    sys.stderr.flush()
    if sys.stdout is sys.__stdout__:  # and isn't read by a test in this process
        os._exit(status)
    raise typer.Exit(status)


def bytes_text(size_bytes: float) -> str:
    """Return a size for people, in decimal units as on a bill."""
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.2f} TB"
