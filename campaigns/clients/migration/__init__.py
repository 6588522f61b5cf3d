"""A live group of real members restarted one by one from the classic protocol to KIP-848 and back.

``python -m campaigns migration`` runs it and prints what was measured; :mod:`.account` says of
what the members told whether a partition was without an owner, a record skipped, or a commit went back.
"""
