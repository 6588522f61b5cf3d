"""The issuer's public keys, from a file or a URL: read off the loop, and read again when they are old or unknown.

The keys of a URL are fetched by ``https``; by ``http`` only from this machine, or where the manifest allows the URL.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from urllib.parse import urlsplit

from blumfeld.spi.hooks import EventLog
from blumfeld.spi.runtime import Files, Runtime
from blumfeld_security.sasl.authenticators import BearerUser
from blumfeld_security.sasl.bearer_tokens import Keys, TokenRules, key_id, read_keys, verified

DOCUMENT_BYTES_MAX = 1 << 20
FETCH_SECONDS_MAX = 10.0
UNKNOWN_KEY_PAUSE_MS = 10_000
"""Shortest time between two readings for tokens with an unknown key: such tokens cost nothing to make."""


class KeysUnavailable(Exception):  # noqa: N818 - the noun says what it is
    """The keys can't be read. The text says where and why."""


def check_url(url: str, allowed: tuple[str, ...]) -> None:
    """Refuse a URL from which nobody should take keys.

    :param allowed: URLs that are taken whatever their scheme
    :raises ValueError: it is neither a file nor ``https``, or ``http`` of another machine
    """
    parts = urlsplit(url)
    local = parts.hostname in ("127.0.0.1", "::1", "localhost")
    if parts.scheme in ("https", "file") or url in allowed or (parts.scheme == "http" and local):
        return
    raise ValueError(f"{url}: allowed: https://…, file:///…, or a URL that oauthbearer_allowed_urls names")


class IssuerKeys:
    """Checks tokens. :meth:`load` once; then :meth:`verify` for each login.

    :param refresh_ms: ``sasl.oauthbearer.jwks.endpoint.refresh.ms``
    :param retry_ms: ``sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms``: pause after a reading that failed
    """

    def __init__(
        self,
        runtime: Runtime,
        events: EventLog,
        url: str,
        rules: TokenRules,
        refresh_ms: int,
        retry_ms: int,
        fetch: Callable[[Files, str], bytes] | None = None,
    ) -> None:
        self._runtime = runtime
        self._events = events
        self._url = url
        self._rules = rules
        self._refresh_ms = refresh_ms
        self._retry_ms = retry_ms
        self._fetch = fetch or fetched
        self._keys: Keys = {}
        self._next_ms = 0.0
        """When the keys are old."""
        self._unknown_ms = float("-inf")
        """Last reading for an unknown key."""

    async def load(self) -> None:
        """Read the keys.

        :raises KeysUnavailable: they can't be read
        """
        self._next_ms = self._runtime.monotonic_ms() + self._retry_ms
        self._keys = await self._runtime.offload(self._read, self._runtime.files, self._url)
        self._next_ms = self._runtime.monotonic_ms() + self._refresh_ms

    def _read(self, files: Files, url: str) -> Keys:
        """Returns the keys at the URL. Slow: a document of 1 MiB takes tens of milliseconds to read alone."""
        try:
            return read_keys(self._fetch(files, url))
        except ValueError as error:
            raise KeysUnavailable(f"{url}: {error}") from None

    async def verify(self, token: str) -> BearerUser:
        """Returns the meaning of a token.

        :raises InvalidToken: as ``bearer_tokens.verified``
        """
        now_ms = self._runtime.monotonic_ms()
        if now_ms >= self._next_ms:
            await self._load_again()
        named = key_id(token)
        if named and named not in self._keys and now_ms - self._unknown_ms >= UNKNOWN_KEY_PAUSE_MS:
            self._unknown_ms = now_ms
            await self._load_again()
        return verified(token, self._keys, self._rules, self._runtime.now_ms())

    async def _load_again(self) -> None:
        """Read the keys again. If that fails, those that were read stay, and the next try has a pause before it."""
        try:
            await self.load()
        except KeysUnavailable as error:
            self._events.warning("keys of bearer tokens stay as they were", reason=str(error))


def fetched(files: Files, url: str) -> bytes:
    """Returns the document at a URL. Blocks.

    :raises KeysUnavailable: it can't be read, or is too large
    """
    parts = urlsplit(url)
    try:
        if parts.scheme == "file":
            data = files.read_bytes(parts.path)
        else:
            opener = urllib.request.build_opener(_NoRedirects)
            with opener.open(url, timeout=FETCH_SECONDS_MAX) as response:
                data = response.read(DOCUMENT_BYTES_MAX + 1)
    except (OSError, ValueError, HTTPException) as error:  # URLError is an OSError
        raise KeysUnavailable(f"{url}: {error}") from None
    if len(data) > DOCUMENT_BYTES_MAX:
        raise KeysUnavailable(f"{url}: more than {DOCUMENT_BYTES_MAX} bytes")
    return data


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it could lead to another host, or from https to http."""

    def redirect_request(self, *_: object) -> None:
        return None
