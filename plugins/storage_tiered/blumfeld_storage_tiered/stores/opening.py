"""Opens the store that a URL names."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from blumfeld.spi.conformance import problems
from blumfeld.spi.object_store import ObjectStore, StoreFactory
from blumfeld.spi.runtime import Runtime
from blumfeld.wire.errors import PluginContractError
from blumfeld_storage_tiered.stores.aws_credentials import AwsCredentialsFile
from blumfeld_storage_tiered.stores.options import RequestOptions, StoreOptions
from blumfeld_storage_tiered.stores.urls import FORMS, StoreRefusedError, StoreUrl, parse_url, shown_url

AT = "storage.options.store"
"""The manifest's key, for errors."""


class _ServiceAccount(msgspec.Struct, frozen=True):
    """What obstore reads of Google's file."""

    client_email: str
    private_key: str
    private_key_id: str


def open_store(
    url: str, runtime: Runtime, options: StoreOptions, others: Mapping[str, StoreFactory]
) -> ObjectStore:
    """Returns the store of a URL. It makes no request yet: ``check_store`` does.

    :param others: stores that plug-ins bring, by scheme (``Composition.object_stores``)
    :raises StoreRefusedError: the URL can't be used, has credentials in it, has a scheme that no store of this build
        serves, or needs obstore, which isn't installed; or an option is wrong, or of another kind of store
    :raises PluginContractError: a plug-in's store lacks a method
    """
    place = parse_url(url, AT)
    _check_tables(place, shown_url(url), options)
    if (factory := others.get(place.scheme)) is not None:
        store = factory(url, runtime)
        if lacks := problems(store, ObjectStore):
            raise PluginContractError(f"the store of {shown_url(url)} is no ObjectStore: {'; '.join(lacks)}")
        return store
    if place.scheme not in FORMS:
        known = ", ".join(sorted({*FORMS, *others}))
        allowed = f"one of the schemes {known}; another store comes by a plug-in that [plugins] stores names"
        raise StoreRefusedError(AT, shown_url(url), allowed)
    try:
        import obstore.exceptions
        import obstore.store
    except ImportError:
        mistake = f"{shown_url(url)}, and the package obstore isn't installed"
        remedy = "pip install 'blumfeld-storage-tiered[obstore]'"
        allowed = f"any store once it is ({remedy}), or that of a plug-in in [plugins] stores"
        raise StoreRefusedError(AT, mistake, allowed) from None
    try:
        return _opened(obstore.store, place, shown_url(url), runtime, options)
    except (obstore.exceptions.BaseError, OSError) as error:
        reason = str(error).partition("\n")[0][:200]
        allowed = f"{FORMS[place.scheme]}, with all parts of its credentials in the environment or in a file"
        raise StoreRefusedError(AT, f"{shown_url(url)} ({reason})", allowed) from None


def check_apart(url: str, data_dirs: Sequence[str]) -> None:
    """Check that a folder of the store lies in no data directory: it would share its disk, and end with it.

    :raises StoreRefusedError: it lies in one
    """
    place = parse_url(url, AT)
    for directory in data_dirs if place.scheme == "file" else ():
        absolute = os.path.abspath(directory)
        if f"{os.path.abspath(place.prefix)}/".startswith(f"{absolute}/"):
            mistake = f"{shown_url(url)}, in the data directory {absolute}"
            raise StoreRefusedError(AT, mistake, "a folder outside of every data directory")


def _check_tables(place: StoreUrl, shown: str, options: StoreOptions) -> None:
    """Refuse a table that would have no effect: the store is of another kind."""
    for scheme in ("file", "s3", "gs", "az"):
        if scheme != place.scheme and getattr(options, scheme) != getattr(StoreOptions(), scheme):
            mistake = f"a table for {FORMS[scheme]}, and the store is {shown}"
            raise StoreRefusedError(f"storage.options.{scheme}", mistake, "the table of the store's own kind")


def _opened(kinds: Any, place: StoreUrl, shown: str, runtime: Runtime, options: StoreOptions) -> ObjectStore:
    from blumfeld_storage_tiered.stores.obstore_store import FileStore, ObstoreStore

    requests = options.requests
    if place.scheme == "memory":
        return ObstoreStore(kinds.MemoryStore(), requests, shown, sorts=True)
    if place.scheme == "file":
        return FileStore(requests, shown, runtime, place.prefix, read_in_place=options.file.read_in_place)
    make = {"s3": _s3, "gs": _gcs, "az": _azure}[place.scheme]
    return ObstoreStore(make(kinds, place, runtime, options), requests, shown, sorts=False)


def _s3(kinds: Any, place: StoreUrl, runtime: Runtime, options: StoreOptions) -> Any:
    table = options.s3
    config: dict[str, Any] = {
        "virtual_hosted_style_request": not table.path_style,
        "disable_bulk_delete": True,
    }
    if table.endpoint is not None:
        config["endpoint"] = _endpoint(table.endpoint, "storage.options.s3.endpoint")
    if table.region is not None:
        config["region"] = table.region
    provider = None
    if table.credentials_file is not None:
        provider = AwsCredentialsFile(runtime, table.credentials_file, table.profile)
        provider()  # a file that isn't there, or has no keys, is told now
    return kinds.S3Store(
        place.bucket,
        prefix=place.prefix or None,
        config=config,
        credential_provider=provider,
        **_client(options.requests, table.endpoint),
    )


def _gcs(kinds: Any, place: StoreUrl, runtime: Runtime, options: StoreOptions) -> Any:
    config: dict[str, Any] = {}
    if (path := options.gs.credentials_file) is not None:
        _check_service_account(runtime, path)
        config["service_account_path"] = path
    return kinds.GCSStore(
        place.bucket, prefix=place.prefix or None, config=config, **_client(options.requests, None)
    )


def _check_service_account(runtime: Runtime, path: str) -> None:
    """obstore's error would blame the URL, and repeat what is in the file."""
    at, allowed = "storage.options.gs.credentials_file", "the JSON file of a service account, with its keys"
    try:
        msgspec.json.decode(runtime.files.read_bytes(path), type=_ServiceAccount)
    except OSError as error:
        raise StoreRefusedError(at, f'"{path}" ({error.strerror})', allowed) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        needed = ", ".join(_ServiceAccount.__struct_fields__)
        raise StoreRefusedError(at, f'"{path}", which is no JSON with {needed}', allowed) from None


def _azure(kinds: Any, place: StoreUrl, runtime: Runtime, options: StoreOptions) -> Any:
    account, _, container = place.bucket.partition("/")
    config: dict[str, Any] = {"account_name": account}
    if (endpoint := options.az.endpoint) is not None:
        config["endpoint"] = _endpoint(endpoint, "storage.options.az.endpoint")
    return kinds.AzureStore(
        container, prefix=place.prefix or None, config=config, **_client(options.requests, endpoint)
    )


def _endpoint(endpoint: str, at: str) -> str:
    if not endpoint.startswith(("http://", "https://")) or "@" in endpoint or "?" in endpoint:
        raise StoreRefusedError(at, shown_url(endpoint), "https://HOST:PORT, without credentials")
    return endpoint.rstrip("/")


def _client(requests: RequestOptions, endpoint: str | None) -> dict[str, Any]:
    return {
        "client_options": {
            "allow_http": endpoint is not None and endpoint.startswith("http://"),
            "connect_timeout": f"{requests.connect_timeout_ms}ms",
            "timeout": f"{requests.request_timeout_ms}ms",
        },
        "retry_config": {
            "max_retries": requests.retries,
            "retry_timeout": timedelta(milliseconds=requests.retry_timeout_ms),
        },
    }
