"""The command ``blumfeld``. ``run`` bypasses typer and rich, because they would double its start-up time."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Returns the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["run"]:
        gc.disable()  # What is imported stays. The node and the supervisor turn collection on again.
        try:
            from blumfeld.cli.run import run

            return run(given[1:])
        except KeyboardInterrupt:
            return 0  # before the node handles signals, and so before anything is open: the same clean end
    from blumfeld.cli.app import run_app

    return run_app(given)


if __name__ == "__main__":
    sys.exit(main())
