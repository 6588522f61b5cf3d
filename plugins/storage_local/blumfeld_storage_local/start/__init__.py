"""Open logs: recover what a crash tore, and find out what a clean stop left, from as few files as possible."""
