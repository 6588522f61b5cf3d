"""Reads an archive back. Every reader sees only committed files (:mod:`committed`).

``market`` rebuilds books and bars, ``producing`` writes records to a topic again, ``exports`` and ``plots`` write files
for other tools and for people. ``views`` gives DuckDB the tables, ``findings`` lists the gaps, and ``ordered`` merges
files in the order of time.
"""
