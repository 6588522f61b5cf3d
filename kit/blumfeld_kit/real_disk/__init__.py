"""Storage on a real disk, in processes that die: by SIGKILL, in the middle of a write, with failing writes, under
strace.
"""
