"""What obstore's errors become. Their own texts have headers, answers and URLs in them; no secret may pass, so a text
is made anew from what is known to be safe."""

from __future__ import annotations

import re

from blumfeld.spi.object_store import (
    ObjectExistsError,
    ObjectNotFoundError,
    StoreDeniedError,
    StoreError,
    StoreMisconfiguredError,
    StoreUnavailableError,
)

NO_SUCH_PLACE = frozenset(
    {
        "NoSuchBucket",
        "InvalidBucketName",
        "ContainerNotFound",
        "PermanentRedirect",
        "AuthorizationHeaderMalformed",
    }
)
"""Codes of an answer: the bucket isn't there, or lies in another region."""
DENIED = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "TokenRefreshRequired",
        "InvalidToken",
        "RequestTimeTooSkewed",
        "RequestExpired",
    }
)
"""Codes of an answer that has status 400 and is about credentials, or about our clock."""
COLLISIONS = frozenset({"ConditionalRequestConflict", "OperationAborted"})
"""Two requests for one object met. Nothing is known of either; a later one tells."""
DENIED_BY_SYSTEM = (1, 13, 30)
"""EPERM, EACCES, EROFS: numbers of the operating system for a folder that we may not change."""

NAME_TOO_LONG = 36
NO_FOLDER = (17, 20)
"""EEXIST and ENOTDIR: a file stands where a folder must be made."""

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,80})</Code>")
_MESSAGE = re.compile(r"<Message>([^<\n]{1,200})")
_SYSTEM = re.compile(r"\(os error (\d+)\)")
_FOLDER = re.compile(r"\(os error 2[01]\)|Is a directory|Not a directory")
_QUERY = re.compile(r"\?[^\s\"'>)]*")
_NO_RANGE = re.compile(
    r"status code: 416|[Rr]ange (?:was invalid|starting at|Not Satisfiable)|Invalid range|\"bytes 0--1/0\""
)
_METADATA_SERVICE = re.compile(r"/latest/api/token|/latest/meta-data|/computeMetadata/|/metadata/identity")


def is_behind_the_end(error: BaseException) -> bool:
    """Whether a ranged read failed because the range begins behind the end of the object."""
    return _NO_RANGE.search(str(error)) is not None


def store_error(error: BaseException, operation: str, key: str, store: str) -> StoreError:
    """Returns what an error of obstore becomes.

    :param store: the store for people, ``shown_url``'s
    """
    text = str(error)
    status, code = int(_first(_STATUS, text) or 0), _first(_CODE, text) or ""
    where = f"{operation} {key} in {store}"
    kind, hint = _kind(type(error).__name__, text, status, code)
    if operation != "put" and _FOLDER.search(text):
        kind = ObjectNotFoundError
    return kind(f"{where}: {_reason(text, status, code)}{hint}")


def _kind(name: str, text: str, status: int, code: str) -> tuple[type[StoreError], str]:
    system = int(_first(_SYSTEM, text) or 0)
    if code in NO_SUCH_PLACE or "redirect without LOCATION" in text:
        return StoreMisconfiguredError, "; the bucket must exist, in the region that the options say"
    if _METADATA_SERVICE.search(text):
        return (
            StoreDeniedError,
            "; no credentials were found: set them in the environment, or name a file in the options",
        )
    if code == "RequestTimeTooSkewed":
        return StoreDeniedError, "; the clock of this machine is wrong"
    if code in DENIED or status in (401, 403) or system in DENIED_BY_SYSTEM:
        return StoreDeniedError, ""
    if name in ("PermissionDeniedError", "UnauthenticatedError"):
        return StoreDeniedError, ""
    if name == "FileNotFoundError" or status == 404:
        return ObjectNotFoundError, ""
    if system == NAME_TOO_LONG:
        return StoreMisconfiguredError, "; a folder's name has at most 255 characters, so a topic's about 220"
    if system in NO_FOLDER and name != "AlreadyExistsError":
        return StoreMisconfiguredError, "; a file stands where the folder must be"
    if code in COLLISIONS:
        return StoreUnavailableError, ""
    if name in ("AlreadyExistsError", "PreconditionError") or status in (409, 412):
        return ObjectExistsError, ""
    if name in (
        "UnknownConfigurationKeyError",
        "InvalidPathError",
        "NotSupportedError",
        "NotImplementedError",
    ):
        return StoreMisconfiguredError, ""
    if status in (301, 307, 308, 400, 405, 501) and code != "RequestTimeout":
        return (
            StoreMisconfiguredError,
            "; this store doesn't do what we need, or the endpoint is another one's",
        )
    return StoreUnavailableError, ""


def _reason(text: str, status: int, code: str) -> str:
    if status:
        message = _first(_MESSAGE, text)
        return " ".join(filter(None, (f"status {status}", code, f"({message})" if message else "")))
    line = _QUERY.sub("?***", text.partition("\n\nDebug source")[0].partition("\n")[0])
    return line[:300]


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return None if match is None else match[1]
