"""The contract of group types: the kit, and a group that a test takes through its life."""

from blumfeld_kit.groups.contract import GROUP, GroupProtocolContract
from blumfeld_kit.groups.driven_group import GroupUnderTest

__all__ = ["GROUP", "GroupProtocolContract", "GroupUnderTest"]
