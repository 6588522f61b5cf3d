"""The archive's errors. Their texts are for people and say what to do."""

from __future__ import annotations


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
