"""Host port: packets of docs/protocol.md to and from the tile."""

from pequin.host.port import HostPort

__all__ = ["HostPort"]
