"""Campaigns that look at the archive from outside. The broker, ``blumfeld archive …`` and each reader are processes.

The expected contents come from the feed itself by ``json.loads`` and ``Decimal`` (:mod:`.common.expected_tallies`),
never from the archive's own decoders. DuckDB, Polars, pyarrow and Spark read the plain files (:mod:`.common.tallies`).

``golden`` counts one feed by four readers, ``oracle`` compares with the exchange's own numbers, ``bad_input`` has
surroundings that an archive can't work with, and ``crashes`` kills processes.
"""
