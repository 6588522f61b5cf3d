"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, as a group type on the coordinator
runtime.
"""

from blumfeld_groups_classic.plugin import ClassicGroupProtocol, Plugin

__all__ = ["ClassicGroupProtocol", "Plugin"]
