"""SASL's exchanges, both sides, and hashed passwords. Pure: no socket, no clock, no chance."""
