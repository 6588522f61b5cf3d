"""Parquet files: their names, their encodings, and how a task writes them."""
