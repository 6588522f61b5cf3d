"""A campaign that waits, and says when what it started is stopped."""

import time

if __name__ == "__main__":
    try:
        print("started", flush=True)
        time.sleep(60)
    finally:
        print("stopped", flush=True)
