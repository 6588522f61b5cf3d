"""Measure what a rebalance costs the members of a group: classic (eager, cooperative) and KIP-848, on virtual members
over the wire, server beside server.

``blumfeld bench rebalance VARIANT…``. A *cell* is one group of one protocol and size on one server. In a cell the
*scenarios* run one after the other: a member is killed, one is added, one leaves, a tenth is added. Definitions:

**Ownership.** A member owns a partition while it may read it. KIP-848: from the heartbeat answer that gives it to the
one that takes it away. Cooperative: from the SyncGroup answer that gives it to the one in which it is missing. Eager:
from the SyncGroup answer to the next JoinGroup, because a rejoining member gives up everything first. A killed member
owns nothing from the moment its connection is closed, a leaving one from the moment it sends its farewell.

**Time to stable.** The time from the event (JoinGroup or first heartbeat sent; LeaveGroup sent; connection closed) to
the last change of ownership after which every partition has one owner, every member is in the group, and no member
has two partitions more than another. The group must stay so for a whole heartbeat interval, or the clock goes on. A
killed member is missed when its session ends, counted from its last heartbeat. The rest of the session at the kill is
reported apart, as ``session_s``; the time to stable counts from the session's end.

**Time to converge.** The time until, in addition, every member has been told: none is in a JoinGroup or SyncGroup,
all are at one generation or epoch.

**A member's pause.** For a member that is there before and after: the time between event and stable in which it owns
fewer partitions than before and fewer than after. In that time it could have read more if the group had not been
changing. Cooperative and KIP-848 promise that there is no such pause.

**A partition's pause.** For each partition that another member owns afterwards: the time between event and stable
without an owner.

**CPU of a rebalance.** CPU time of all the server's processes from the event until the group has been stable for an
interval. The server's use in as long a time at rest is subtracted; it is measured in two intervals after the cell's
last event.
"""
