"""Ends of a check other than the good one."""

from __future__ import annotations


class NotOffered(Exception):  # noqa: N818 - no error: the cell shows a dash
    """The client has no way to do this; the message says so."""


class CheckFailed(Exception):  # noqa: N818 - the verdict of a check
    """The client offers it, and it did not work; the message says what was seen."""


def require(truth: bool, otherwise: str) -> None:
    """Fail the check with what was seen instead.

    :raises CheckFailed: it is not true
    """
    if not truth:
        raise CheckFailed(otherwise)


class NoClientError(Exception):
    """A client can't be run here; the message says what is absent."""
