"""Verbs that start Spark: they archive topics, or try whether that works and how fast it is."""
