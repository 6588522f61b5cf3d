"""Market quality from what the exchange numbers: gaps, duplicates, order, crossed books, skew. Pure."""
