"""Target assignments: subscriptions, what assignors are given, and how members get to their targets."""
