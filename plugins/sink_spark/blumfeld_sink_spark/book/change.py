"""A step of a book."""

from __future__ import annotations

import attrs
import pyarrow as pa


@attrs.frozen
class Change:
    """Rows to apply to a book, all of whole messages, in order."""

    rows: pa.Table
    replaces: bool
    """The rows are the whole book; else they are levels that change."""
    last_id: int | None
    """The id of the last message in the book."""
    broken: bool = False
    """True where a change has been missing since the last snapshot."""
