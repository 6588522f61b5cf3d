"""The driver of transactional producers: prepared frames, as real clients send them, in both generations."""
