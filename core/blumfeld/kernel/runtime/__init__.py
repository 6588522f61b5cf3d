"""The runtime of a real node: loop, files, worker process, memory of the machine."""
