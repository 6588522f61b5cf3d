"""A plug-in that was written against a Blumfeld that had this name."""

from blumfeld.spi.storage import never_there  # type: ignore[attr-defined]

Plugin = never_there
