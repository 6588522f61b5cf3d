"""Run a bench: the session, one server a turn, and the counts of what the server used."""
