"""URLs of object stores. A URL names a place, and never a secret: one with credentials in it is refused."""

from __future__ import annotations

import re

import msgspec

from blumfeld.spi.object_store import StoreMisconfiguredError

FORMS = {
    "s3": "s3://BUCKET/PREFIX",
    "gs": "gs://BUCKET/PREFIX",
    "az": "az://ACCOUNT/CONTAINER/PREFIX",
    "file": "file:///ABSOLUTE/PATH",
    "memory": "memory://",
}
"""The schemes that need no plug-in, and the form of each URL. The prefix may be left out."""

_URL = re.compile(r"([a-z][a-z0-9+.-]*)://([^?#]*)([?#].*)?", re.DOTALL)


class StoreRefusedError(StoreMisconfiguredError):
    """A store can't be opened as the manifest says.

    :param path: the key of the manifest that is to blame
    """

    def __init__(self, path: str, found: str, allowed: str) -> None:
        super().__init__(f"{path}: found {found}; allowed: {allowed}")
        self.path = path
        self.found = found
        self.allowed = allowed


class StoreUrl(msgspec.Struct, frozen=True):
    """The parts of a URL."""

    scheme: str
    bucket: str
    """Empty for ``file`` and ``memory``; ``az`` has ``ACCOUNT/CONTAINER``."""
    prefix: str
    """Without a slash at either end; the whole path for ``file``."""


def shown_url(url: str) -> str:
    """Returns the URL for people: whatever may be a secret is left out."""
    match = _URL.fullmatch(url)
    if match is None:
        return '"***"' if "@" in url or "?" in url else f'"{url}"'
    place = f"***@{match[2].rpartition('@')[2]}" if "@" in match[2] else match[2]
    return f'"{match[1]}://{place}{"?***" if match[3] else ""}"'


def parse_url(url: str, at: str = "storage.options.store") -> StoreUrl:
    """Returns the parts of a URL; those of an unknown scheme are its bucket and its prefix.

    :raises StoreRefusedError: it is no URL, has credentials in it, or lacks its bucket
    """
    shown = shown_url(url)
    match = _URL.fullmatch(url)
    if match is None:
        raise StoreRefusedError(at, shown, "a URL: " + ", ".join(FORMS.values()))
    scheme, place = match[1], match[2]
    form = FORMS.get(scheme, f"{scheme}://…")
    if "@" in place or match[3]:
        secrets = (
            f"{form} alone; credentials come from the environment, or from a file that options.{scheme} names"
        )
        raise StoreRefusedError(at, f"{shown}, a URL with credentials or a query", secrets)
    if scheme == "file":
        if not place.startswith("/") or not place.strip("/"):
            raise StoreRefusedError(at, shown, form)
        return StoreUrl(scheme, "", "/" + place.strip("/"))
    parts = [part for part in place.split("/") if part]
    wanted = {"memory": 0, "az": 2}.get(scheme, 1)
    too_many = scheme == "memory" and len(parts) > 0
    if too_many or len(parts) < wanted or ".." in parts or "." in parts:
        raise StoreRefusedError(at, shown, form)
    return StoreUrl(scheme, "/".join(parts[:wanted]), "/".join(parts[wanted:]))
