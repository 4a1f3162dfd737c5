"""The KV buffer: granules in on-chip memory, written token by token, read as weight streams."""

from pequin.kv.buffer import KvBuffer

__all__ = ["KvBuffer"]
