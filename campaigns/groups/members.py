"""Model members of groups: pure state machines that obey the protocols as real clients do.

They may be driven on virtual time, as the simulation beside this does, or over a real connection.
"""

from __future__ import annotations

from campaigns.groups.classic_member import COOPERATIVE, EAGER, ClassicMember
from campaigns.groups.consumer_member import ConsumerMember
from campaigns.groups.member import (
    Effect,
    Failed,
    Member,
    MemberSettings,
    Own,
    Partition,
    Send,
    Topic,
    View,
    WakeAt,
)

__all__ = [
    "COOPERATIVE",
    "EAGER",
    "ClassicMember",
    "ConsumerMember",
    "Effect",
    "Failed",
    "Member",
    "MemberSettings",
    "Own",
    "Partition",
    "Send",
    "Topic",
    "View",
    "WakeAt",
]
