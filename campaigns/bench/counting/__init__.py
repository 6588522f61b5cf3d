"""Instructions, system calls and bytecodes of one request, counted by other programs than a clock."""
