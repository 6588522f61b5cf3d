"""The common style of all pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

INK, SOFT, GRID = "#22272e", "#6b7480", "#e3e7ec"
BLUE, ORANGE, GREEN, RED, VIOLET, TEAL = "#2f6fb3", "#e08a1e", "#3d9a63", "#c8443c", "#7d5ba6", "#2a9d9d"
CYCLE = (BLUE, ORANGE, GREEN, VIOLET, TEAL, RED)
WIDTH_IN, DPI = 11.0, 140

_SETTINGS: Any = {
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelcolor": SOFT,
    "axes.edgecolor": "#aab2bd",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "text.color": INK,
    "axes.titlecolor": INK,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "svg.hashsalt": "blumfeld",
    "timezone": "UTC",
}


@contextmanager
def figure(
    rows: int, height_in: float, title: str, subtitle: str, **options: Any
) -> Iterator[tuple[Any, Any]]:
    """Gives (figure, axes) in our style, with a title and a line below it. The figure is closed at the end."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with matplotlib.rc_context(_SETTINGS):
        made, axes = plt.subplots(rows, figsize=(WIDTH_IN, height_in), layout="constrained", **options)
        made.get_layout_engine().set(rect=(0.005, 0.01, 0.99, 1 - 0.80 / height_in), hspace=0.06)
        made.text(0.012, 1 - 0.30 / height_in, title, fontsize=14, fontweight="bold", va="center")
        made.text(0.012, 1 - 0.56 / height_in, subtitle, fontsize=9.5, color=SOFT, va="center")
        try:
            yield made, axes
        finally:
            plt.close(made)


def save(made: Any, folder: Path, name: str, svg: bool) -> Path:
    """Writes the picture and returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.{'svg' if svg else 'png'}"
    # no date inside: the same archive gives the same file
    made.savefig(path, dpi=DPI, metadata={"Date": None} if svg else {"Software": None})
    return path


def time_axis(axis: Any, label: bool = True) -> None:
    """Formats the x axis as UTC times, with the date where a date begins."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator: Any = AutoDateLocator(minticks=5, maxticks=10)  # type: ignore[no-untyped-call]
    formatter = ConciseDateFormatter(  # type: ignore[no-untyped-call]
        locator,
        formats=["%Y", "%b %Y", "%b %d", "%H:%M", "%H:%M", "%H:%M:%S"],
        zero_formats=["", "%Y", "%b %Y", "%b %d", "%H:%M", "%H:%M"],
        show_offset=False,  # the line below the title has the dates
    )
    axis.xaxis.set_major_locator(locator)
    axis.xaxis.set_major_formatter(formatter)
    if label:
        axis.set_xlabel("UTC")


def big_numbers(axis: Any) -> None:
    """Formats the y axis with :func:`short`."""
    from matplotlib.ticker import FuncFormatter

    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def short(value: float) -> str:
    """Returns a number as ``12k`` or ``3.4M``."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def legend(axis: Any, columns: int) -> None:
    """Puts the legend above the axes at the right, where it never covers data."""
    axis.legend(
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=columns,
        fontsize=9,
        handlelength=1.4,
        borderaxespad=0.2,
    )


def span_of(times_ns: Sequence[int]) -> str:
    """Returns first and last time as text, for the line below the title."""
    from blumfeld_sink_spark.reading.times import iso_of

    first, last = iso_of(min(times_ns)), iso_of(max(times_ns))
    end = last[11:19] if last[:10] == first[:10] else f"{last[:10]} {last[11:19]}"
    return f"{first[:10]} {first[11:19]} to {end} UTC"
