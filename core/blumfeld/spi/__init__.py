"""The contracts: the Protocols that a plug-in implements, the parts that it is handed, and the values between them.

One module a role, each with its Protocol; :mod:`blumfeld.spi.hooks` lists the hooks in the order of a broker's life. A
contract is the docstring of the method: what is true when it returns, and what each error becomes on the wire. Nothing
here does anything; floor 2 imports :mod:`blumfeld.wire` only.
"""

VERSION = "1.0"
"""The version of these contracts, MAJOR.MINOR. A plug-in may say which one it needs (``Plugin`` in
:mod:`blumfeld.spi.hooks`).

MINOR grows when something is added: a plug-in for 1.2 works with 1.2 and every later 1.x. MAJOR grows when something is
taken away or means something else. docs/plugin-api.md has the rules.
"""
