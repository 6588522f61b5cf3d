"""Sizes of the parts in which large work on the metadata is done. Pure."""

from __future__ import annotations

SLICE_RECORDS = 128
"""Records that are decided, encoded, replayed or published in one turn: 1 to 4 ms."""
SLICE_LOOKS = 1_024
"""Partitions that are only looked at in one turn."""
BATCH_RECORDS_MAX = 256
"""Records in one batch of a decision. A part has about ``SLICE_RECORDS``, so it is one batch."""
