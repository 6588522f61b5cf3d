"""io_uring: its numbers and system calls, the ring with its queues and buffers, the probe, and asyncio's loop on it."""
