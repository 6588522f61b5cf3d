"""The book against the exchange's own best bid and ask, and faults planted in the feed, both by the archive's files."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from blumfeld.testing.archive import ledger
from blumfeld.testing.archive.faults import KINDS, Fault, breaks, plant
from blumfeld.testing.archive.feed import MadeFeed, Message, read_capture, write_capture
from blumfeld.testing.archive.golden import load, started, step
from blumfeld.testing.archive.process import Archive
from blumfeld.testing.archive.rebuild import KNOWN, by_the_archives_book, compare, quotes_in, updates_in
from blumfeld.testing.archive.report import Report

BORDER = 1_000
FAULTS = 24
MADE_MESSAGES = 60_000
ONCE_S = 600.0
NAMED_AS = {"dropped": ("gap",), "doubled": ("duplicate",), "swapped": ("gap", "out_of_order")}
"""Kinds that ``gaps`` must have at the offsets of a fault, in their order."""


def oracle(
    folder: Path, report: Report, *, captures: Sequence[Path], decoder: str, reader: str, seed: int
) -> None:
    """The captures, one feed together, as they are; then the same with faults in it."""
    paths = list(captures) or [write_capture(folder / "made.gz", MadeFeed(seed).messages(MADE_MESSAGES))]
    messages = [message for path in paths for message in read_capture(path)]
    with ExitStack() as stack:
        bootstrap = started(stack, folder).address
        whole = Archive(folder / "whole", bootstrap, ["whole"], decoders=[decoder], reader=reader)
        for path in paths:
            step(report, f"load {path.name}", load(folder, bootstrap, path, "whole"))
        if step(report, "whole: archive once", whole.run("once", timeout_s=ONCE_S)):
            names = ",".join(path.name for path in paths)
            _books(report, whole.root, KNOWN.get((names, decoder)))
            _gaps(report, whole.root, "whole: gaps", [], breaks(messages))
        planted, faults = plant(messages, FAULTS, seed, BORDER)
        _planted(folder, report, bootstrap, decoder, reader, planted, faults)


def _books(report: Report, root: Path, known: int | None) -> None:
    """By two books that have nothing in common but the files."""
    quotes = quotes_in(root)
    began = time.monotonic()
    found = compare(updates_in(root), quotes)
    _compared(report, "book by a plain loop over the files", *found, known, time.monotonic() - began)
    began = time.monotonic()
    found = by_the_archives_book(root, quotes)
    _compared(report, "book by blumfeld_sink_spark.book", *found, known, time.monotonic() - began)


def _compared(
    report: Report, title: str, compared: int, wrong: list[str], known: int | None, seconds: float
) -> None:
    told = f"{compared - len(wrong)} of {compared} best bids and asks equal, price and size"
    if known is not None and compared != known:
        wrong.insert(0, f"compared {compared} times, known are {known}")
    if not compared:
        wrong.insert(0, "nothing could be compared")
    report.add(title, told, wrong[:5], seconds)


def _planted(
    folder: Path,
    report: Report,
    bootstrap: str,
    decoder: str,
    reader: str,
    planted: list[Message],
    faults: list[Fault],
) -> None:
    path = write_capture(folder / "planted.gz", planted)
    broken = Archive(folder / "planted", bootstrap, ["planted"], decoders=[decoder], reader=reader)
    step(report, "load with faults", load(folder, bootstrap, path, "planted"))
    outcome = broken.run("once", timeout_s=ONCE_S, max_offsets_per_trigger=BORDER)
    if not step(report, f"planted: archive once, batches of {BORDER}", outcome):
        return
    borders = set(ledger.borders(broken.root, "planted"))
    at_borders = sum(any(offset in borders for offset in fault.named) for fault in faults)
    found = f"{len(faults)}, {at_borders} of them across the border of two of {len(borders)} batches"
    report.add("faults planted", found, [] if at_borders * 2 >= len(faults) else ["too few lie at borders"])
    _gaps(report, broken.root, "planted: gaps", faults, breaks(planted))


def _gaps(report: Report, root: Path, title: str, faults: Sequence[Fault], expected: Sequence[int]) -> None:
    """Each fault by its kind and offset, and nothing else but what the feed has of itself."""
    found = Counter(gaps_in(root))
    wanted = Counter(
        (kind, offset)
        for fault in faults
        for kind, offset in zip(NAMED_AS[fault.kind], fault.named, strict=True)
    )
    own = set(expected) - {offset for _, offset in wanted}
    wrong = [f"{kind} at {offset} is not named" for kind, offset in (wanted - found)]
    rest = found - wanted
    wrong += [f"{kind} at {offset} is named" for kind, offset in rest if offset not in own]
    named = {offset for _, offset in found}
    wrong += [f"the feed's own break at {offset} is not named" for offset in own - named]
    by_kind = Counter(fault.kind for fault in faults)
    told = ", ".join(f"{by_kind[kind]} {kind}" for kind in KINDS if by_kind[kind]) or "no fault"
    report.add(title, f"{sum(found.values())} rows for {told}, {len(own)} of the feed itself", wrong[:8])


def gaps_in(root: Path) -> list[tuple[str, int]]:
    """(kind, offset) of all rows."""
    import duckdb

    if not any((root / "gaps").rglob("*.parquet")):
        return []
    query = f"SELECT kind, k_offset FROM read_parquet('{root}/gaps/**/*.parquet') ORDER BY k_offset, kind"
    return [(str(kind), int(offset)) for kind, offset in duckdb.sql(query).fetchall()]
