"""``python -m campaigns security``: unmodified clients log in at a secured broker, by each protocol and mechanism."""
