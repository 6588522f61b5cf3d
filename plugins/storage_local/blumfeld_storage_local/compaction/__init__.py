"""Cleaner passes over a log, and the swap that makes their result count."""
