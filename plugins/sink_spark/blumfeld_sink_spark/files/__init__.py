"""Parquet files: written by tasks, merged by compaction."""
