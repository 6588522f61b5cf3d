"""Open logs after a start: recover what a crash tore, and set aside what cannot be."""
