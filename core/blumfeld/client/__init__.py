"""One client of the protocol, without I/O: what every caller of a broker shares, whatever moves its bytes.

:class:`~blumfeld.client.connection.ClientConnection` turns requests into bytes and bytes into answers. Three thin
drivers move the bytes: ``blocking`` (a socket), ``asyncio_connection`` (a loop), ``dialed`` (the node's own transport).
``versions``, ``metadata``, ``produce`` and ``fetch`` hold what a client remembers between requests. ADR 0016 has the
reasons.
"""
