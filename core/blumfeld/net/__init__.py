"""The common part of all transports: cutting frames, answers in order, limits, an orderly end.

Pure, except for ``sockets`` and ``selecting``, which the drivers on the system's own sockets share.
"""
