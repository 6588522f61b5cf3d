"""The log of one replica: its ends, the append path, and the parts that it is put together from."""
