"""The wire format: schema language, message codec, messages, record batches, compression, errors.

Floor 1, pure: nothing here reads a clock, opens a file or knows a broker. Importing this package imports
nothing; a message's module is imported when its class is asked for (:mod:`blumfeld.wire.api`).
"""
