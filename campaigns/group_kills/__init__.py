"""kill -9 of a broker under load: a producer, groups of real clients, a client that only commits.

The broker dies in the middle of commits and rebalances, at rest, while it starts and while it stops. It comes back on
the same directory. Then no acknowledged record is lost, doubled or out of order, no committed offset went back, each
group gets every record, and the members of a KIP-848 group needn't join again.
"""
