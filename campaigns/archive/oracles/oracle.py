"""Compares books from the archive's files with the exchange's own best bid and ask, and the table ``gaps`` with planted
faults.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from blumfeld.feeds.binance import MadeFeed, Message
from campaigns.archive.common import ledger
from campaigns.archive.common.capture import decoder_of, read_capture, write_capture
from campaigns.archive.common.process import Archive
from campaigns.archive.common.report import Report
from campaigns.archive.golden import load, started, step
from campaigns.archive.oracles.faults import KINDS, Fault, breaks, plant
from campaigns.archive.oracles.rebuild import KNOWN, by_the_archives_book, compare, quotes_in, updates_in

BORDER = 1_000
FAULTS = 24
MADE_MESSAGES = 60_000
ONCE_S = 600.0
NAMED_AS = {"dropped": ("gap",), "doubled": ("duplicate",), "swapped": ("gap", "out_of_order")}
"""Kinds that ``gaps`` must have for a fault, in the order of its offsets."""


def oracle(
    folder: Path, report: Report, *, captures: Sequence[Path], decoder: str, reader: str, seed: int
) -> None:
    """Archives each venue's captures as one feed, first unchanged, then with faults in it."""
    paths = list(captures) or [write_capture(folder / "made.gz", MadeFeed(seed).messages(MADE_MESSAGES))]
    feeds: dict[str, list[Path]] = {}
    for path in paths:
        feeds.setdefault(decoder or decoder_of(read_capture(path)), []).append(path)
    with ExitStack() as stack:
        bootstrap = started(stack, folder).address
        for name, parts in feeds.items():
            _feed(folder, report, bootstrap, name, parts, reader, seed)


def _feed(
    folder: Path, report: Report, bootstrap: str, decoder: str, paths: list[Path], reader: str, seed: int
) -> None:
    messages = [message for path in paths for message in read_capture(path)]
    topic = f"{decoder}.whole"
    whole = Archive(folder / topic, bootstrap, [topic], decoders=[decoder], reader=reader)
    for path in paths:
        step(report, f"{decoder}: load {path.name}", load(folder, bootstrap, path, topic))
    if step(report, f"{decoder}: archive once", whole.run("once", timeout_s=ONCE_S)):
        known = KNOWN.get((",".join(path.name for path in paths), decoder))
        _books(report, whole.root, decoder, known)
        _gaps(report, whole.root, f"{decoder}: gaps of the feed as it is", [], breaks(messages))
    planted, faults = plant(messages, FAULTS, seed, BORDER)
    _planted(folder, report, bootstrap, decoder, reader, planted, faults)


def _books(report: Report, root: Path, decoder: str, known: int | None) -> None:
    """Checks two books that share only the files: a plain loop, and the archive's own."""
    quotes = quotes_in(root)
    began = time.monotonic()
    found = compare(updates_in(root), quotes)
    _compared(
        report, f"{decoder}: book by a plain loop over the files", *found, known, time.monotonic() - began
    )
    began = time.monotonic()
    found = by_the_archives_book(root, quotes)
    _compared(report, f"{decoder}: book by blumfeld_sink_spark.book", *found, known, time.monotonic() - began)


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
    topic = f"{decoder}.planted"
    path = write_capture(folder / f"{topic}.gz", planted)
    broken = Archive(folder / topic, bootstrap, [topic], decoders=[decoder], reader=reader)
    step(report, f"{decoder}: load with faults", load(folder, bootstrap, path, topic))
    outcome = broken.run("once", timeout_s=ONCE_S, max_offsets_per_trigger=BORDER)
    if not step(report, f"{decoder}: archive once, batches of {BORDER:,}", outcome):
        return
    borders = set(ledger.borders(broken.root, topic))
    at_borders = sum(any(offset in borders for offset in fault.named) for fault in faults)
    found = f"{len(faults)}, {at_borders} of them across the border of two of {len(borders)} batches"
    wrong = ["too few lie at borders"] if at_borders * 2 < len(faults) else []
    report.add(f"{decoder}: faults planted", found, wrong)
    _gaps(report, broken.root, f"{decoder}: gaps of the feed with faults", faults, breaks(planted))


def _gaps(report: Report, root: Path, title: str, faults: Sequence[Fault], expected: Sequence[int]) -> None:
    """Checks that ``gaps`` names each fault by kind and offset, and besides them only the feed's own breaks."""
    found = Counter(gaps_in(root))
    wanted = Counter(
        (kind, offset)
        for fault in faults
        for kind, offset in zip(NAMED_AS[fault.kind], fault.named, strict=True)
    )
    own = set(expected) - {offset for _, offset in wanted}
    wrong = [f"{kind} at {offset} is not named" for kind, offset in (wanted - found)]
    rest = found - wanted
    for offset in {offset for kind, offset in wanted if kind == "out_of_order"}:
        del rest["gap_end", offset]  # a late message closes the gap that it left
    wrong += [f"{kind} at {offset} is named" for kind, offset in rest if offset not in own]
    named = {offset for _, offset in found}
    wrong += [f"the feed's own break at {offset} is not named" for offset in own - named]
    by_kind = Counter(fault.kind for fault in faults)
    told = ", ".join(f"{by_kind[kind]} {kind}" for kind in KINDS if by_kind[kind]) or "no fault"
    report.add(title, f"{sum(found.values())} rows for {told}, {len(own)} of the feed itself", wrong[:8])


def gaps_in(root: Path) -> list[tuple[str, int]]:
    """Returns (kind, offset) of all rows of ``gaps``."""
    import duckdb

    if not any((root / "gaps").rglob("*.parquet")):
        return []
    query = f"SELECT kind, k_offset FROM read_parquet('{root}/gaps/**/*.parquet') ORDER BY k_offset, kind"
    return [(str(kind), int(offset)) for kind, offset in duckdb.sql(query).fetchall()]
