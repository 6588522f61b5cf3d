"""The largest request of each API beside a probe: how long one client can make all the others wait.

``python -m blumfeld.testing.stalls`` sends, for each API that a broker advertises and each array in its request, as
many elements as fit. A probe on a connection of its own measures its round trips meanwhile.
"""
