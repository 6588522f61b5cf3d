"""Fetch responses into Arrow columns, without a Python object for a record.

The heart is pure: bytes of the wire in, batches of raw rows out. :mod:`session` drives it over a blocking socket.
"""
