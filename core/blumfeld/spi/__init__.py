"""The contracts: the Protocols that a plug-in implements, the parts that it is handed, and the values between them.

One module a role, each with its Protocol; :mod:`blumfeld.spi.hooks` lists the hooks in the order of a broker's life. A
contract is the docstring of the method: what is true when it returns, and what each error becomes on the wire. Nothing
here does anything; floor 2 imports :mod:`blumfeld.wire` only.
"""
