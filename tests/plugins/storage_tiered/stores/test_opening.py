"""A store opens as the manifest says, or an error says what is wrong, and no secret gets out."""

from __future__ import annotations

import builtins
import errno
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from blumfeld.plugging.errors import ManifestError
from blumfeld.plugging.sections import decode_section
from blumfeld.spi.object_store import ObjectBytes, ObjectStore, StoreMisconfiguredError, local_file
from blumfeld.spi.runtime import Runtime
from blumfeld.wire.errors import PluginContractError
from blumfeld_kit.fakes.object_store import SimulatedStore
from blumfeld_kit.fakes.real_time import RealTimeRuntime
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_storage_tiered.options import Options
from blumfeld_storage_tiered.stores.obstore_store import COPY_BYTES
from blumfeld_storage_tiered.stores.opening import check_apart, open_store
from blumfeld_storage_tiered.stores.options import (
    AzureOptions,
    FileOptions,
    GcsOptions,
    S3Options,
    StoreOptions,
)
from blumfeld_storage_tiered.stores.urls import StoreRefusedError, StoreUrl, parse_url, shown_url
from tests.everyday import for_each
from tests.plugins.storage_tiered.stores.s3_answers import s3_answers

SECRET = "wJalrXUtnFEMIsecretK7MDENG"


@pytest.fixture
def runtime() -> Iterator[RealTimeRuntime]:
    """A runtime on asyncio's loop."""
    runtime = RealTimeRuntime()
    yield runtime
    runtime.end()


@for_each(
    [
        ("s3://ticks/archive/2026/", StoreUrl("s3", "ticks", "archive/2026")),
        ("s3://ticks", StoreUrl("s3", "ticks", "")),
        ("gs://ticks/a", StoreUrl("gs", "ticks", "a")),
        ("az://account/ticks/a/b", StoreUrl("az", "account/ticks", "a/b")),
        ("file:///var/lib/x/", StoreUrl("file", "", "/var/lib/x")),
        ("memory://", StoreUrl("memory", "", "")),
        ("acme+x://one/two", StoreUrl("acme+x", "one", "two")),
    ]
)
def test_a_url_has_its_parts(url: str, parts: StoreUrl) -> None:
    assert parse_url(url) == parts


@for_each(
    [
        "",
        "ticks",
        "s3:ticks",
        "s3://",
        "az://account",
        "file://var/lib",
        "gs:///",
        "s3://a/../b",
        "S3://x",
        "file:///",
        "file:////",
        "memory://x",
    ]
)
def test_a_url_that_is_none_says_which_forms_there_are(url: str) -> None:
    with pytest.raises(StoreRefusedError) as raised:
        parse_url(url)
    assert raised.value.path == "storage.options.store"
    assert "://" in raised.value.allowed


@for_each(
    [
        f"s3://AKIA:{SECRET}@ticks/archive",
        f"s3://{SECRET}@ticks",
        f"az://account/container?sv=1&sig={SECRET}",
        f"acme://u:{SECRET}@x",
        f"nonsense:{SECRET}@x",
        f"s3://ticks/a#{SECRET}",
    ]
)
def test_a_url_with_a_secret_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(StoreRefusedError) as raised:
        open_store(url, FakeRuntime(), StoreOptions(), {"acme": lambda *_: pytest.fail("was asked")})
    assert SECRET not in f"{raised.value!s} {raised.value!r} {raised.value.found}"
    assert SECRET not in shown_url(url)
    assert "***" in shown_url(url)


def test_an_endpoint_with_a_secret_is_refused_and_not_repeated() -> None:
    s3 = StoreOptions(s3=S3Options(endpoint=f"http://u:{SECRET}@127.0.0.1:1"))
    az = StoreOptions(az=AzureOptions(endpoint=f"https://a/?sig={SECRET}"))
    for url, options in (("s3://ticks", s3), ("az://a/b", az)):
        with pytest.raises(StoreRefusedError, match=rf"storage.options.{url[:2]}.endpoint: ") as raised:
            open_store(url, FakeRuntime(), options, {})
        assert SECRET not in str(raised.value)


def test_a_scheme_that_nobody_serves_names_those_that_there_are() -> None:
    with pytest.raises(
        StoreRefusedError, match=r"one of the schemes acme, az, file, gs, memory, s3; .*\[plugins\] stores"
    ):
        open_store("ftp://x/y", FakeRuntime(), StoreOptions(), {"acme": SimulatedStore})  # type: ignore[dict-item]


def test_a_plugins_store_serves_its_scheme() -> None:
    made: list[str] = []

    def factory(url: str, runtime: Runtime) -> ObjectStore:
        made.append(url)
        return SimulatedStore(runtime)

    store = open_store("acme://one/two", FakeRuntime(), StoreOptions(), {"acme": factory})
    assert isinstance(store, SimulatedStore)
    assert made == ["acme://one/two"]


def test_a_plugins_store_that_is_none_names_what_it_lacks() -> None:
    with pytest.raises(
        PluginContractError, match=r'the store of "acme://x" is no ObjectStore: .*no put_parts\('
    ):
        open_store("acme://x", FakeRuntime(), StoreOptions(), {"acme": lambda *_: object()})  # type: ignore[dict-item]


def test_without_obstore_the_error_names_the_extra_and_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    imports = builtins.__import__

    def without(name: str, *args: Any, **values: Any) -> Any:
        if name.partition(".")[0] == "obstore":
            raise ModuleNotFoundError(name)
        return imports(name, *args, **values)

    monkeypatch.setattr(builtins, "__import__", without)
    for url in ("s3://ticks/archive", "file:///x", "memory://"):
        with pytest.raises(StoreRefusedError) as raised:
            open_store(url, FakeRuntime(), StoreOptions(), {})
        assert url in raised.value.found
        assert "obstore isn't installed" in raised.value.found
        assert "blumfeld-storage-tiered[obstore]" in raised.value.allowed


def test_importing_the_plug_in_imports_no_obstore() -> None:
    import subprocess
    import sys

    code = "import sys, blumfeld_storage_tiered.stores.opening; sys.exit('obstore' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@for_each(
    [
        ({"s3": {"endpoint": "https://x", "region": "eu", "path_style": False}}, None),
        ({"requests": {"retries": 0, "request_timeout_ms": 10}}, None),
        ({"s3": {"secret_access_key": SECRET}}, "storage.options.s3.secret_access_key"),
        ({"s3": {"key": "x"}}, "storage.options.s3.key"),
        ({"azure": {}}, "storage.options.azure"),
        ({"requests": {"request_timeout_ms": 0}}, "storage.options.requests.request_timeout_ms"),
        ({"requests": {"retries": "3"}}, "storage.options.requests.retries"),
    ]
)
def test_an_option_that_is_unknown_or_wrong_is_refused_with_its_path(
    tables: dict[str, Any], path: str | None
) -> None:
    def decode() -> Options:
        return decode_section({"store": "s3://x", **tables}, Options, "broker.toml", "storage.options")

    if path is None:
        decode()
        return
    with pytest.raises(ManifestError) as raised:
        decode()
    assert [problem.path for problem in raised.value.problems] == [path]
    assert SECRET not in str(raised.value)


def test_every_cloud_has_a_store_that_opens_without_a_request(
    runtime: RealTimeRuntime, tmp_path: Path
) -> None:
    account = tmp_path / "account.json"
    account.write_text(
        '{"type":"service_account","client_email":"x","private_key":"y","private_key_id":"z",'
        '"gcs_base_url":"http://127.0.0.1:1","disable_oauth":true}'
    )
    options = StoreOptions(gs=GcsOptions(credentials_file=str(account)))
    open_store("gs://ticks", runtime, options, {})
    for url in ("s3://ticks/archive", "az://account/ticks/archive"):
        open_store(url, FakeRuntime(), StoreOptions(), {})


def test_a_service_accounts_file_that_cannot_be_used_is_blamed_and_not_repeated(
    runtime: RealTimeRuntime, tmp_path: Path
) -> None:
    account = tmp_path / "account.json"
    options = StoreOptions(gs=GcsOptions(credentials_file=str(account)))
    for content in (None, "", "{}", f'"{SECRET}"', f'{{"private_key":"{SECRET}"}}', f"nonsense {SECRET}"):
        if content is not None:
            account.write_text(content)
        with pytest.raises(StoreRefusedError, match=r"gs.credentials_file: .*account.json") as raised:
            open_store("gs://ticks", runtime, options, {})
        assert SECRET not in str(raised.value)


@for_each(
    [
        ("s3", StoreOptions(s3=S3Options(endpoint="https://x"))),
        ("gs", StoreOptions(gs=GcsOptions(credentials_file="/x"))),
        ("az", StoreOptions(az=AzureOptions(endpoint="https://x"))),
    ]
)
def test_a_table_for_another_kind_of_store_is_refused(table: str, options: StoreOptions) -> None:
    with pytest.raises(StoreRefusedError, match=rf'storage.options.{table}: .*the store is "file:///x"'):
        open_store("file:///x", FakeRuntime(), options, {})


@for_each(
    ["file:///var/lib/x", "file:///var/lib/x/", "file:///var/lib/x/store", "file:///var/lib/y/../x/store"]
)
def test_a_store_in_a_data_directory_is_refused(url: str) -> None:
    with pytest.raises(
        StoreRefusedError, match=r"storage.options.store: .*in the data directory /var/lib/x; "
    ):
        check_apart(url, ["/mnt/a", "/var/lib/x"])


@for_each(["file:///var/lib/x2", "file:///var/lib", "s3://var/lib/x", "memory://"])
def test_a_store_outside_of_the_data_directories_is_taken(url: str) -> None:
    check_apart(url, ["/var/lib/x"])


def test_a_folder_is_made_with_the_first_request_and_not_by_a_plan(
    runtime: RealTimeRuntime, tmp_path: Path
) -> None:
    store = open_store(f"file://{tmp_path}/a/b", runtime, StoreOptions(), {})
    assert list(tmp_path.iterdir()) == []
    runtime.run(store.put("c", b"x"))
    assert (tmp_path / "a" / "b" / "c").read_bytes() == b"x"


def test_a_folder_that_cannot_be_made_is_an_error_that_names_it(
    runtime: RealTimeRuntime, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("x")
    for place in ("file", "file/below"):
        store = open_store(f"file://{tmp_path}/{place}", runtime, StoreOptions(), {})
        with pytest.raises(
            StoreMisconfiguredError, match=rf"put c in \"file:///.*/{place}\".*a file stands where"
        ):
            runtime.run(store.put("c", b"x"))


class Keys:
    """A file of credentials."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "credentials"

    def write(self, key: str, profile: str = "default") -> None:
        """Put a key into a profile."""
        self.path.write_text(f"[{profile}]\naws_access_key_id = {key}\naws_secret_access_key = {SECRET}\n")

    def options(self, endpoint: str, profile: str = "default") -> StoreOptions:
        """Options that name the file."""
        s3 = S3Options(endpoint=endpoint, credentials_file=str(self.path), profile=profile)
        return StoreOptions(s3=s3)


def test_keys_come_from_the_file_that_the_manifest_names(
    runtime: RealTimeRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ANOTHER")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "other")
    keys = Keys(tmp_path)
    with s3_answers() as server:
        keys.write("AKIAFILE", "trading")
        store = open_store("s3://ticks", runtime, keys.options(server.endpoint, "trading"), {})
        runtime.run(store.put("a", b"x"))
        assert "Credential=AKIAFILE/" in server.headers[-1]["authorization"]


def test_keys_that_were_renewed_are_used_when_the_old_ones_are_old(
    runtime: RealTimeRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = Keys(tmp_path)
    with s3_answers() as server:
        keys.write("AKIAOLD")
        now_ms = runtime.now_ms()
        monkeypatch.setattr(runtime, "now_ms", lambda: now_ms - 120_000)  # so that a minute is over at once
        store = open_store("s3://ticks", runtime, keys.options(server.endpoint), {})
        runtime.run(store.put("a", b"x"))
        keys.write("AKIANEW")
        runtime.run(store.put("a", b"x"))
        used = [header["authorization"].partition("Credential=")[2][:7] for header in server.headers]
        assert used == ["AKIAOLD", "AKIANEW"]


@for_each(
    [
        (None, "No such file or directory"),
        (f"{SECRET}\n", "no INI file"),
        (f"[other]\naws_secret_access_key = {SECRET}\n", r"one of its profiles: other"),
        (f"[default]\naws_secret_access_key = {SECRET}\n", "without aws_access_key_id"),
    ]
)
def test_a_file_without_keys_is_refused_and_not_repeated(content: str | None, complaint: str) -> None:
    runtime = FakeRuntime()
    if content is not None:
        runtime.files.write_atomically("/keys", content.encode())
    options = StoreOptions(s3=S3Options(credentials_file="/keys"))
    with pytest.raises(StoreRefusedError, match=complaint) as raised:
        open_store("s3://ticks", runtime, options, {})
    assert raised.value.path == "storage.options.s3.credentials_file"
    assert SECRET not in str(raised.value)


def test_a_store_works_while_every_worker_thread_is_busy(runtime: RealTimeRuntime) -> None:
    """obstore has threads of its own: those of ``offload`` stay with fdatasync."""
    store = open_store("memory://", runtime, StoreOptions(), {})
    gate = threading.Event()

    async def use() -> ObjectBytes:
        busy = [runtime.offload(gate.wait, 20) for _ in range(8)]
        await store.put("a", b"x")
        data = await store.get_range("a", 0, 5)
        assert [info.key async for info in store.list("")] == ["a"]
        await store.delete("a")
        gate.set()
        for work in busy:
            await work
        return data

    assert runtime.run(use()) == b"x"


def test_a_large_part_is_handed_over_in_pieces(
    runtime: RealTimeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """obstore copies a piece on the loop's thread."""
    import obstore

    sizes: list[int] = []
    open_writer = obstore.open_writer_async

    def noting(*args: Any, **values: Any) -> Any:
        writer = open_writer(*args, **values)

        def write(piece: memoryview) -> Any:
            sizes.append(len(piece))
            return writer.write(piece)

        return SimpleNamespace(write=write, close=writer.close)

    async def parts() -> AsyncIterator[bytes]:
        yield bytes(3 * COPY_BYTES + 1)
        yield b"x"

    monkeypatch.setattr(obstore, "open_writer_async", noting)
    store = open_store("memory://", runtime, StoreOptions(), {})
    runtime.run(store.put_parts("a", parts()))
    assert sizes == [COPY_BYTES] * 3 + [1, 1]


def test_what_was_put_into_a_folder_is_on_the_device(
    runtime: RealTimeRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fdatasync, os.fsync

    def note(fd: int, sync: Any) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        sync(fd)

    monkeypatch.setattr(os, "fdatasync", lambda fd: note(fd, real[0]))
    monkeypatch.setattr(os, "fsync", lambda fd: note(fd, real[1]))
    store = open_store(f"file://{tmp_path}/s", runtime, StoreOptions(), {})
    runtime.run(store.put("a/b/c", b"x"))
    root = f"{tmp_path}/s"
    above = [str(folder) for folder in Path(root).parents]
    assert synced == [f"{root}/a/b/c", f"{root}/a/b", f"{root}/a", root, *above]
    synced.clear()
    runtime.run(store.put("a/d", b"x"))
    assert synced == [f"{root}/a/d", f"{root}/a", root], "those above are on the device"


def test_a_folder_of_another_machine_is_not_read_in_place(
    runtime: RealTimeRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS can't tell what is in the page cache: to send a file from there could hold the loop."""

    def refuse(*_: Any) -> int:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    async def file_in(url: str, options: StoreOptions = StoreOptions()) -> str | None:  # noqa: B008
        store = open_store(url, runtime, options, {})
        await store.put("a", b"x")
        assert await local_file(store, "absent") in (None, f"{tmp_path}/absent")
        return await local_file(store, "a")

    assert runtime.run(file_in("memory://")) is None
    assert runtime.run(file_in(f"file://{tmp_path}")) == f"{tmp_path}/a"
    slow = StoreOptions(file=FileOptions(read_in_place=False))
    assert runtime.run(file_in(f"file://{tmp_path}", slow)) is None
    monkeypatch.setattr(os, "preadv", refuse)
    assert runtime.run(file_in(f"file://{tmp_path}")) is None


def test_the_options_of_a_store_are_those_of_the_plug_in() -> None:
    fields = {field.name for field in msgspec.structs.fields(Options)}
    assert {field.name for field in msgspec.structs.fields(StoreOptions)} <= fields


def test_half_of_the_credentials_is_refused_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    with pytest.raises(
        StoreRefusedError, match=r"Missing AccessKeyId.*allowed: .*all parts of its credentials"
    ) as raised:
        open_store("s3://ticks", FakeRuntime(), StoreOptions(), {})
    assert SECRET not in str(raised.value)
