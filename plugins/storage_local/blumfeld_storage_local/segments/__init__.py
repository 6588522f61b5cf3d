"""What a segment is on disk: its files, its indexes, where batches stand in it, how many files may be open."""
