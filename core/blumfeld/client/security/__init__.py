"""What a client does before its first request: TLS, and a login by SASL. The tools use it, and a node at its peers.

``tls``, ``stores`` and ``certificate`` make a context of Python's ``ssl``. ``sasl`` and ``scram`` are the client's half
of the exchanges, without I/O. ``command_config`` reads a client's file of properties.
"""
