"""Opens the store that an archive's root names."""

from __future__ import annotations

from blumfeld_sink_spark.errors import SettingsError
from blumfeld_sink_spark.stores.contract import ArchiveStore
from blumfeld_sink_spark.stores.local import LocalStore


def open_store(root: str) -> ArchiveStore:
    """Returns the store of an archive's root: a folder (made when something is written), or by its URL an object
    store (``s3://bucket/prefix``, ``gs://``, ``az://``, ``memory://``), which takes credentials from the environment.

    ``file://`` is a folder: with its syncs, which an object store's adapter for files would leave out.

    :raises SettingsError: the URL's scheme is unknown
    """
    scheme, separator, rest = root.partition("://")
    if not separator:
        return LocalStore(root)
    if scheme == "file":
        return LocalStore(rest)
    if scheme not in ("s3", "s3a", "gs", "az", "memory"):
        raise SettingsError(
            f"archive.root: {root}; allowed: a folder, file://, s3://, gs://, az://, memory://"
        )
    # A local archive must not pay for obstore's import: each of Spark's Python workers would.
    from blumfeld_sink_spark.stores.objects import ObjectStore

    return ObjectStore.of(root)
