"""Target assignments: subscriptions, the input of assignors, and the steps of members to their targets."""
