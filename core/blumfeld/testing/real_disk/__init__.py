"""Storage on the real disk, in processes that die: by SIGKILL, within a write, under strace, with failing writes."""
