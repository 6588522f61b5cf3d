"""Where tables are printed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 240


def console() -> Console:
    """Standard output, as wide as the terminal; a pipe or a file, which has no width, takes whole rows."""
    from rich.console import Console

    made = Console()
    return made if made.is_terminal or "COLUMNS" in os.environ else Console(width=PIPE_WIDTH)
