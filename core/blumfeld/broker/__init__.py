"""Turns requests into answers: dispatch, handlers, partitions, purgatory, fetch sessions."""
