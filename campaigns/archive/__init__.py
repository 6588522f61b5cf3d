"""The archive from outside: a broker, ``blumfeld archive …`` and readers that know nothing of either, each a process.

What must be there is worked out from the feed itself (:mod:`.expected`: ``json.loads`` and ``Decimal``), never by
the archive's own decoders; what is there is read by DuckDB, Polars, pyarrow and Spark from the plain files
(:mod:`.tallies`).
"""
