"""Sizes of the parts in which large work on the metadata is done. Pure."""

from __future__ import annotations

SLICE_RECORDS = 128
"""Records that are decided, encoded, replayed or published in one turn: 1 to 4 ms."""
SECTION_RECORD_COST = 4
"""Records of the core that are replayed in the time of one in a plug-in's section: an ACL takes 20 µs, and 100 µs where
parts of its map split."""
SLICE_LOOKS = 1_024
"""Partitions that are only looked at in one turn."""
BATCH_RECORDS_MAX = 256
"""Records in one batch of a decision. A part has about ``SLICE_RECORDS``, so it is one batch."""
