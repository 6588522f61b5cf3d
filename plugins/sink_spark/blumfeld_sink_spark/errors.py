"""The archive's errors. Their texts are for people and say what to do."""

from __future__ import annotations

import re

WORDS_CHARS = 200
"""Characters of an exception that a row of quarantine keeps."""


class ArchiveError(Exception):
    """A failure that a person must mend. The text is one line: what is wrong, and the remedy. Commands exit with 1."""


class AwayError(ArchiveError):
    """The broker, or another service that is needed, doesn't answer. No record is lost, and a retry may succeed."""


class LedgerConflictError(ArchiveError):
    """Another writer holds the archive, or a commit would overlap another or leave a hole. Nothing was published."""


class SettingsError(ArchiveError):
    """The settings are wrong. The text names the key, the found value and the allowed ones. Nothing was opened.
    Commands exit with 2.
    """


def words_of(error: BaseException) -> str:
    """Returns an exception's kind and text in one line, without addresses of objects: a batch that is run again must
    give the same bytes.
    """
    text = " ".join(re.sub(r"\b0x[0-9a-fA-F]{6,}\b", "0x…", str(error)).split())
    kind = type(error).__name__
    return f"{kind}: {text}"[:WORDS_CHARS] if text else kind
