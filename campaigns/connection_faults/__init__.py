"""Clients that misbehave as sockets do: killed mid-frame, slow, idle, many.

A fault (:mod:`.fault`) is done to a broker in a process of its own while a well-behaved load (:mod:`.background`) goes
on, which must not see an error or a stall. Afterwards the broker must have what it had before: descriptors, tasks,
connections, parked requests (:mod:`.census`); and its memory must not grow from one repetition to the next.

Half-closed connections and the limits of their number are in the contract kit of transports.
"""
