"""Conversion of a whole group to the other group type and back (KIP-848)."""
