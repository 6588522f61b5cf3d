"""The driver that sends prepared frames over its own sockets."""
