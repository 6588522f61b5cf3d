"""``archive export``: writes the archive in the forms of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from blumfeld_sink_spark.commands.common.edge import edge

FORMATS = {"tardis": "tardis", "hftbacktest": "hftbacktest", "nautilus": "nautilus", "csv": "plain"}


@edge
def command(
    form: Annotated[str, typer.Option("--format", help="tardis, hftbacktest, nautilus or csv.")],
    root: Annotated[str, typer.Option(help="The archive.")] = "archive",
    out: Annotated[Path, typer.Option(help="A folder, new or empty.")] = Path("export"),
    symbol: Annotated[list[str] | None, typer.Option(help="May be repeated; all without it.")] = None,
    venue: Annotated[str, typer.Option(help="Needed by some formats if a symbol has several.")] = "",
    start: Annotated[str | None, typer.Option("--from", help="Events then or later.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="Events before then.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A line of JSON for each file.")] = False,
) -> None:
    """Write trades, book and quotes as files of other tools, in the order of their receipt."""
    import json
    from importlib import import_module

    from blumfeld_sink_spark.errors import ArchiveError, SettingsError
    from blumfeld_sink_spark.reading.committed_files import Committed
    from blumfeld_sink_spark.reading.exports.selection import Selection, empty_folder
    from blumfeld_sink_spark.reading.times import ns_of

    if form not in FORMATS:
        raise SettingsError(f"format {form!r}; allowed: {', '.join(FORMATS)}")
    selection = Selection(Committed.open(root), symbol or [], venue, ns_of(start), ns_of(end))
    writer = import_module(f"blumfeld_sink_spark.reading.exports.{FORMATS[form]}")
    files = 0
    for written in writer.export(selection, empty_folder(out)):
        files += 1
        if as_json:
            typer.echo(json.dumps({"path": str(written.path), "rows": written.rows}))
        else:
            typer.echo(f"{written.path}  {written.rows:,} rows")
    if not files:
        raise ArchiveError(
            f"nothing to export as {form}: no rows with these --symbol, --venue, --from and --to"
        )
