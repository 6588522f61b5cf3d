"""What a rebalance costs the members of a group: classic (eager, cooperative) and KIP-848, on virtual members
over the wire, server beside server.

``blumfeld bench rebalance VARIANT…``. A *cell* is one group of one protocol and size on one server; in it one
*scenario* after the other: a member is killed, one is added, one leaves, a tenth is added. What is counted:

**To own.** A member owns a partition while it may read it. KIP-848: from the heartbeat answer that gives it to
the one that takes it away. Cooperative: from the SyncGroup answer that gives it to the one in which it is missing.
Eager: from the SyncGroup answer to the next JoinGroup, for who rejoins gives up everything first. A killed member
owns nothing from the moment in which its connection is closed, a leaving one from the moment in which it says so.

**Time to stable.** From the event (JoinGroup or first heartbeat sent; LeaveGroup sent; connection closed) to the last
change of ownership after which every partition has one owner, every member is in the group, and no member has two
partitions more than another. It must stay so for a whole heartbeat interval, or the clock goes on. A killed member is
missed when its session ends, counted from its last heartbeat: what is left of the session at the kill is given as
``session_s``, apart, and the time to stable counts from its end.

**Time to converge.** Likewise, until every member has also been told: none in a JoinGroup or SyncGroup, all at one
generation or epoch.

**A member's pause.** For a member that was there before and is there after: the time between event and stable in which
it owns fewer partitions than it had before and than it has after, whichever is less: in which it could read more, had
the group not been changing. Cooperative and KIP-848 promise that there is none.

**A partition's pause.** For each partition that another member owns afterwards: the time between event and stable in
which nobody owned it.

**CPU of a rebalance.** Of all the server's processes, from the event until the group has been stable for an interval,
less what the server uses in as long a time at rest, as two intervals behind the cell's last event show it.
"""
