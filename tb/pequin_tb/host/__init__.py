"""The host at the other end of a tile's link."""

from pequin_tb.host.link import LinkTimeout, RequestRefused, TileLink

__all__ = ["LinkTimeout", "RequestRefused", "TileLink"]
