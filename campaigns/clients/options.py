"""Options of the campaigns that run the matrix: its clients, its columns, and the script that runs Kafka's tools."""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection

from campaigns.references import PEER_VARIABLE


def add_matrix_options(
    parser: argparse.ArgumentParser, clients: Collection[str], columns: Collection[str]
) -> None:
    """Add ``--only``, ``--columns`` and ``--peer``."""
    parser.add_argument("--only", default="", metavar="NAMES", help=f"some of: {', '.join(clients)}")
    parser.add_argument("--columns", default="", metavar="NAMES", help=f"some of: {', '.join(columns)}")
    parser.add_argument(
        "--peer",
        default=os.environ.get(PEER_VARIABLE, ""),
        metavar="PATH",
        help=f"a script that runs Kafka's tools as 'PATH tool CLASS …' (default: ${PEER_VARIABLE})",
    )


def chosen(
    given: argparse.Namespace, clients: Collection[str], columns: Collection[str]
) -> tuple[list[str], list[str]]:
    """Return the clients and the columns that were asked for, by default all. The Java client finds the script.

    :raises ValueError: a name is not one of these
    """
    wanted = []
    for kind, named, known in (("client", given.only, clients), ("column", given.columns, columns)):
        names = named.replace(",", " ").split() or list(known)
        if unknown := [name for name in names if name not in known]:
            raise ValueError(f"no {kind} {', '.join(unknown)}; there are {', '.join(known)}")
        wanted.append(names)
    if given.peer:
        os.environ[PEER_VARIABLE] = given.peer
    return wanted[0], wanted[1]
