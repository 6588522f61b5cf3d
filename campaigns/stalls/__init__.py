"""The largest request of each API beside a probe: how long one client can make all the others wait.

``python -m campaigns stalls`` sends, for each API that a broker advertises and each array in its request, as
many elements as fit. A probe on a connection of its own measures its round trips meanwhile.
"""
