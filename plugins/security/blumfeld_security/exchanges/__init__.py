"""The server's half of SASL's exchanges, and hashed passwords. Pure: no socket, no clock, no chance.

The client's half is :mod:`blumfeld.client.security`'s.
"""
