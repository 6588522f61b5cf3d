"""Order books, book snapshots and bars, rebuilt from an archive's tables."""
