"""The table that ``archive bench`` prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from blumfeld_sink_spark.bench.contest import Line


def table(lines: Sequence[Line], rounds: int) -> Table:
    """A row for each contestant and feed."""
    made = Table(title=f"archived, median of {rounds} rounds; ratios against spark-zstd within each round")
    made.add_column("feed")
    made.add_column("contestant", no_wrap=True)
    for name in ("s", "messages/s", "MB/s", "rate ×", "least–most", "B a row", "bytes ×"):
        made.add_column(name, justify="right")
    last = ""
    for line in lines:
        low, high = line.rate_ratio_range
        made.add_row(
            line.kind if line.kind != last else "",
            line.contestant,
            f"{line.seconds:.2f}",
            f"{line.messages_per_s:,.0f}",
            f"{line.bytes_per_s / 1e6:.1f}",
            f"{line.rate_ratio:.2f}",
            f"{low:.2f}–{high:.2f}",
            f"{line.bytes_per_row:.2f}",
            f"{line.size_ratio:.2f}",
            end_section=line.contestant == lines[-1].contestant,
        )
        last = line.kind
    return made
