"""What the archive refuses, in words that say what to do."""

from __future__ import annotations


class ArchiveError(Exception):
    """A person must do something: one line of what is wrong, and what would be right. Commands print it and exit
    with 1.
    """


class AwayError(ArchiveError):
    """The broker, or another service that is needed, doesn't answer. That can pass by itself: nothing is lost, and the
    same may be tried again.
    """


class LedgerConflictError(ArchiveError):
    """A commit would overlap another, leave a hole, or another writer holds the archive. Nothing was published."""


class SettingsError(ArchiveError):
    """The settings are wrong: the path in them, what was found and what is allowed. Nothing was opened. Exit
    status 2.
    """
