"""Nonsense for a broker: what it is, what must come back, and that the broker serves on and loses nothing.

A case is one row of the table (:mod:`.case`): it does one thing to a :class:`~.target.Target` and says what came back;
what must come back stands beside it. Where it can be said, that is what Apache Kafka 4.3.1 answers: the cases were run
against it (``--bootstrap``), and where it differs the case says so.

Requests that can be read and must be refused are tried by the tests of their handlers (tests/broker/handlers, the
traces of groups, producers and transactions), start-up arguments by tests/cli/test_run and tests/kernel/manifest.
"""
