"""The command line by which ``blumfeld`` starts another of its own processes."""

from __future__ import annotations

import sys


def own_command() -> list[str]:
    """Returns the command that runs ``blumfeld`` with the interpreter and the code of this process.

    An interpreter looks for ``-m`` in the working directory first (``-P`` forbids that): there may lie data, or another
    checkout. An artefact takes no notice of PYTHONPATH and a user's packages (``-E``, ``-s``); nor do its nodes.
    """
    given = {"-E": sys.flags.ignore_environment, "-s": sys.flags.no_user_site}
    return [
        sys.executable,
        "-P",
        *(flag for flag, is_set in given.items() if is_set),
        "-m",
        "blumfeld.cli.main",
    ]
