"""Converts times and offsets from the command line to settings."""

from __future__ import annotations

from datetime import UTC, datetime

from blumfeld_sink_spark.errors import SettingsError


def position(text: str, option: str) -> str:
    """Returns a position in the form of ``settings.starting``.

    A date or time (UTC where it names no zone) and ms since the epoch become ``timestamp:MS``. ``earliest``,
    ``latest``, ``timestamp:MS`` and offsets as JSON stay.

    :raises SettingsError: the text is none of these; the error names ``option``
    """
    if text in ("earliest", "latest") or text.startswith(("timestamp:", "{")):
        return text
    if text.isdigit() and len(text) > 8:
        return f"timestamp:{text}"
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise SettingsError(
            f"{option}: {text!r}; allowed: earliest, latest, a time as 2024-08-08 or 2024-08-08T12:00:00Z, "
            "ms since the epoch, or offsets as JSON"
        ) from error
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return f"timestamp:{int(when.timestamp() * 1000)}"
