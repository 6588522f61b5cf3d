"""Real brokers for tests: ``embedded`` in a thread of the test, ``process`` in a process that can be killed.

``raw_connection`` is a socket to any broker that sends every byte it is given, well formed or not.
"""
