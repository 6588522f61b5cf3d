"""Databento's binary encoding (DBN), versions 1 to 3."""
