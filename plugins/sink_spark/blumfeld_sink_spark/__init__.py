"""An archive of market data: topics into columnar files that any tool reads, exactly once, with the proof beside
them.

Pure rooms (no Spark, no clock): ``tables``, ``records``, ``decoders``, ``quality``, ``book``, and of
``ledger`` the rules. ``files`` and ``ledger`` touch disks and object stores; ``spark`` alone imports pyspark;
``commands`` are what a person types.
"""

from blumfeld_sink_spark.plugin import Plugin

__all__ = ["Plugin"]
