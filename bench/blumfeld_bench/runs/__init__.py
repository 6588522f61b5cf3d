"""Run a bench: the session, one server a turn, and the contract of those that watch."""
