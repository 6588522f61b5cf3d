"""Whole nodes with their clients in one thread on virtual time, over a network and disks that fail.

What is simulated is the node as the kernel composes it; only the runtime (clock, chance, files, offloaded work) and the
transport are other ones. The same seed gives the same trace.
"""
