"""Feeds of market data that are made here, in the exchanges' own form: the demo, the archive's commands and tests share
them. Pure: the same seed gives the same bytes.
"""

RECV_HEADER = "recv_ns"
"""The record header with the time of receipt, ns since the epoch in ASCII. The demo and `archive load` send it; the
archive takes it for ``ts_recv``.
"""
