"""Render a plot as SVG in the page's colours, and as PNG. Only this module loads matplotlib.

The same plot gives the same bytes: no date, ids salted with the plot's name, text kept as text.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import attrs
import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

INK = "#1b1c1e"
MUTED = "#6b6c6e"
GRID = "#d4d5d7"
VARIANT_COLOURS = ("#0060a8", "#c43e01", "#00785a", "#8a3f8f", "#8a6d03", "#3d5a6c")
"""Colours that people with colour blindness can tell apart. Further variants reuse them with another dash."""
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.5)))

PAGE_VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--grid"} | {
    colour: f"--v{index}" for index, colour in enumerate(VARIANT_COLOURS)
}
"""The page's CSS variable for each drawn colour, so that one drawing serves light and dark pages."""

WIDTH_IN, HEIGHT_IN = 4.8, 3.3
"""Size that a phone shows nearly unscaled, so that text stays readable."""
PNG_DPI = 200

STYLE: dict[Any, Any] = {
    "axes.edgecolor": GRID,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 10.5,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "svg.fonttype": "none",
    "text.color": INK,
    "xtick.color": MUTED,
    "xtick.labelsize": 9.5,
    "ytick.color": MUTED,
    "ytick.labelsize": 9.5,
}


@attrs.frozen
class Plot:
    """One drawing."""

    name: str
    """File name without its ending; unique on the page."""
    title: str
    alt: str
    """Description in words with figures, for readers who can't see the plot."""
    draw: Callable[[Axes], None]
    height_in: float = HEIGHT_IN
    legend: bool = True
    step: str = ""
    """Name of the step; printed on a PNG, which stands alone."""


def colour_of(index: int) -> str:
    """Return a variant's colour."""
    return VARIANT_COLOURS[index % len(VARIANT_COLOURS)]


def dash_of(index: int) -> str | tuple[float, tuple[float, ...]]:
    """Return a variant's line style."""
    return DASHES[index // len(VARIANT_COLOURS) % len(DASHES)]


def write_page(page: Path, text: str, plots: Sequence[Plot]) -> list[Path]:
    """Write a page, and a PNG of each plot beside it; create the folder if needed. Return the paths, the page first.

    :raises OSError: the folder can't be written to
    """
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, encoding="utf-8")
    written = [page]
    for plot in plots:
        written.append(page.with_name(f"{plot.name}.png"))
        written[-1].write_bytes(png_of(plot))
    return written


def svg_of(plot: Plot) -> str:
    """Return SVG for a page: no XML head, scales with its box, has a title, a description and unique ids."""
    out = io.StringIO()
    with mpl.rc_context({**STYLE, "svg.hashsalt": plot.name}):
        figure = _figure(plot, titled=False)
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, count=1, flags=re.DOTALL)
    used = set(re.findall(r'(?:url\(|href=")#([^)"]+)', text))
    text = re.sub(r' id="([^"]*)"', lambda match: match.group(0) if match.group(1) in used else "", text)
    text = re.sub(r'\b(id=")|(url\(#)|(href="#)', lambda match: f"{match.group(0)}{plot.name}-", text)
    for colour, variable in PAGE_VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    head, _, rest = text.partition(">")
    head = re.sub(r' (width|height|version)="[^"]*"', "", head)
    label = f'role="img" aria-labelledby="{plot.name}-title {plot.name}-desc"'
    title = f'<title id="{plot.name}-title">{escape(plot.title)}</title>'
    return f'{head} {label}>{title}<desc id="{plot.name}-desc">{escape(plot.alt)}</desc>{rest}'


def png_of(plot: Plot) -> bytes:
    """Return a PNG for a slide or an issue: light, with its title."""
    out = io.BytesIO()
    with mpl.rc_context(STYLE):
        figure = _figure(plot, titled=True)
        metadata = {"Software": None, "Description": plot.alt}
        figure.savefig(out, format="png", dpi=PNG_DPI, facecolor="white", metadata=metadata)
    return out.getvalue()


def _figure(plot: Plot, titled: bool) -> Figure:
    figure = Figure(figsize=(WIDTH_IN, plot.height_in), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_axisbelow(True)
    plot.draw(axes)
    axes.minorticks_off()
    axes.tick_params(length=0)
    if titled:
        title = f"{plot.title}: {plot.step}" if plot.step else plot.title
        figure.suptitle(title, fontsize=12, x=0.01, ha="left")
    handles, labels = axes.get_legend_handles_labels()
    if plot.legend and labels:
        columns = 1 if max(map(len, labels)) > 24 else 2
        figure.legend(handles, labels, loc="outside lower left", ncols=columns)
    return figure
