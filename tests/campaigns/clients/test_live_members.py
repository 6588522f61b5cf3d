"""Members of groups that run as processes of their own."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from campaigns.clients.live_members import member_module


@pytest.mark.parametrize("name", ["aio_member", "confluent_member", "kafka_python_member"])
def test_a_member_is_a_module_that_is_there(name: str) -> None:
    assert find_spec(member_module(name)) is not None
