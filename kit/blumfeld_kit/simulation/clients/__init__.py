"""Clients of the simulation, and the oracle that holds the broker to its promises."""
