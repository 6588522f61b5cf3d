"""Unmodified Kafka clients against a broker: what each of them offers is tried, and the matrix printed.

Each client is one module that says how to produce, consume and administer with it (:mod:`.client`); what must
come of that is the same for all (:mod:`.checks`). Each check of each client runs in a process of its own
with a time limit (:mod:`.step`), so that a client that hangs or crashes costs one cell.
"""
