"""The tile: units joined by semaphores, streams and the host's accesses."""
