"""How a batch of staged files becomes a commit."""
