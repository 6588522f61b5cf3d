"""The kit of the consensus contract."""
