"""Verbs that read an archive: queries, books, bars, findings, exports and pictures."""
