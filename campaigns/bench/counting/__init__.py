"""Instructions and system calls of one request, counted by other programs than a clock."""
