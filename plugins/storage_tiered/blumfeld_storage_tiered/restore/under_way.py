"""The mark of a restore that isn't finished, which keeps a node from starting."""

from __future__ import annotations

from blumfeld.spi.runtime import Files

UNDER_WAY_FILE = "restore-under-way"
"""The file in the first log directory that is there as long as a restore isn't finished."""


def check_restored(files: Files, data_dir: str) -> None:
    """Check that no restore into this directory was interrupted.

    :raises OSError: one was
    """
    if files.exists(f"{data_dir}/{UNDER_WAY_FILE}"):
        raise OSError(
            f"{data_dir}: found {UNDER_WAY_FILE}; a restore of this directory was interrupted. Run `blumfeld tiered"
            " restore` again: it begins anew. Or empty the directory"
        )
