"""The final names of staged files. A name contains the planned range, which not every task knows."""

from __future__ import annotations

from blumfeld_sink_spark.files import file_names
from blumfeld_sink_spark.records import OffsetRange, StagedFile
from blumfeld_sink_spark.tables import tables


def final_path(file: StagedFile, taken: OffsetRange) -> str:
    """Returns the final path of a staged file with rows of this planned range."""
    symbol = file.symbol if tables()[file.table].by_symbol else None
    return file_names.path_of(
        file.table, file.date, symbol, file.topic, file.partition, taken.start, taken.end
    )
