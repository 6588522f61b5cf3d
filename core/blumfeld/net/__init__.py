"""What every transport needs, whatever moves its bytes: frames cut, answers in order, limits kept. Pure but for
``sockets`` and ``selecting``, which the drivers on the system's own sockets share.
"""
