"""Pieces of remote files on the local disk, bounded in bytes."""
