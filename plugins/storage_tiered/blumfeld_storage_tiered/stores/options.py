"""What a manifest says of a store beside its URL. Secrets have no key here: they come from the environment variables
that each cloud's own tools read, or from a file that a key names."""

from __future__ import annotations

from typing import Annotated

import msgspec

Ms = Annotated[int, msgspec.Meta(ge=1)]


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of ``[storage.options]``. Unknown keys are refused."""


class RequestOptions(_Table, frozen=True):
    """``[storage.options.requests]``: how long a request may take, and how often it is tried again.

    obstore's client makes the retries: after a failed connection, a 5xx, a 429, and a timeout of a request that only
    reads. It pauses in between, longer each time, with some chance. No call of a store takes longer than
    ``retry_timeout_ms + request_timeout_ms``, whatever its client does.
    """

    connect_timeout_ms: Ms = 5_000
    request_timeout_ms: Ms = 30_000
    """Bound on one try, with its answer."""
    retries: Annotated[int, msgspec.Meta(ge=0)] = 3
    retry_timeout_ms: Ms = 30_000
    """No try begins later than this after the first."""

    @property
    def call_timeout_ms(self) -> int:
        """Bound on a whole call."""
        return self.retry_timeout_ms + self.request_timeout_ms


class FileOptions(_Table, frozen=True):
    """``[storage.options.file]``."""

    read_in_place: bool = True
    """Readers get pieces from the store's own files. ``False``: from copies in the cache, for a folder on a disk that
    is slower than the node's own."""


class S3Options(_Table, frozen=True):
    """``[storage.options.s3]``. Credentials: ``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``, ``AWS_SESSION_TOKEN``,
    the role of the machine, or ``credentials_file``."""

    endpoint: str | None = None
    """``https://HOST:PORT`` of a store that isn't Amazon's; ``http://`` sends everything in clear text."""
    region: str | None = None
    """``None``: ``AWS_REGION``, else ``us-east-1``."""
    path_style: bool = True
    """The bucket is in the path of a request, and not in the name of the host."""
    credentials_file: str | None = None
    """A file as the AWS tools have it (``~/.aws/credentials``). It is read again each minute: keys can be renewed."""
    profile: str = "default"
    """The section of ``credentials_file``."""


class GcsOptions(_Table, frozen=True):
    """``[storage.options.gs]``. Credentials: ``GOOGLE_APPLICATION_CREDENTIALS``, the machine's service account, or
    ``credentials_file``."""

    credentials_file: str | None = None
    """The JSON file of a service account."""


class AzureOptions(_Table, frozen=True):
    """``[storage.options.az]``. Credentials: ``AZURE_STORAGE_ACCOUNT_KEY``, ``AZURE_STORAGE_SAS_KEY``, the variables of
    a service principal, or the machine's identity."""

    endpoint: str | None = None


class StoreOptions(msgspec.Struct, frozen=True, kw_only=True):
    """All tables that say something of a store."""

    requests: RequestOptions = RequestOptions()
    file: FileOptions = FileOptions()
    s3: S3Options = S3Options()
    gs: GcsOptions = GcsOptions()
    az: AzureOptions = AzureOptions()
