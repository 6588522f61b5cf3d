"""Arrow tables out of the bytes of messages, without a Python object for each message."""
