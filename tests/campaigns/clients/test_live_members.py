"""A member's process leaves nothing open."""

from __future__ import annotations

import gc
import sys

from campaigns.clients.live_members import Member


def test_a_member_that_is_gone_keeps_no_file_open() -> None:
    """The suite takes a file that nobody closed for an error."""
    member = Member([sys.executable, "-c", "import sys; sys.exit('wrong')"])
    assert member.await_end(60)
    assert member.errors() == "wrong"
    del member
    gc.collect()
