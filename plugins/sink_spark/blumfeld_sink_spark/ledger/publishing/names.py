"""Final names of staged files: they need the planned range, which a task doesn't know."""

from __future__ import annotations

from blumfeld_sink_spark.files import naming
from blumfeld_sink_spark.records import OffsetRange, StagedFile
from blumfeld_sink_spark.tables import tables


def final_path(file: StagedFile, taken: OffsetRange) -> str:
    """Where a file of these planned offsets goes."""
    symbol = file.symbol if tables()[file.table].by_symbol else None
    return naming.path_of(file.table, file.date, symbol, file.topic, file.partition, taken.start, taken.end)
