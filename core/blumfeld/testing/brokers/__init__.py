"""Real brokers for tests: ``embedded`` in a thread of the test, ``process`` in a process that can be killed."""
