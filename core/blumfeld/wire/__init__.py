"""Bytes to messages and back: schema language, codec, messages, record batches, errors.

Floor 1, pure: nothing here reads a clock, opens a file or knows a broker. Importing this package
imports nothing; a message module is imported when its class is asked for (:mod:`blumfeld.wire.api`).
"""
