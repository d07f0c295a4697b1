"""Which addresses of the network are the public Internet's. Pure.

Rule: an address within an address counts as well: what a translator or tunnel would make of it (RFC 6052, RFC 3056,
RFC 4380), and an IPv4 address that is written as an IPv6 one (RFC 4291, 2.5.5).
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

_TRANSLATED: Final = IPv6Network("64:ff9b::/96")
_LOCAL_USE: Final = IPv6Network("64:ff9b:1::/48")
"""Of translators within a network (RFC 8215): where it leads only that network knows."""

_COMPATIBLE: Final = IPv6Network("::/96")


def anywhere(_address: str) -> bool:
    """Every address will do."""
    return True


def is_public(address: str) -> bool:
    """`address`, as a resolver gives it, is a host on the public Internet; False for what is no address."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    if not found.is_global or found.is_multicast:
        return False
    if isinstance(found, IPv4Address):
        return True
    return not found.is_site_local and found not in _LOCAL_USE and all(inner.is_global for inner in _inner(found))


def _inner(address: IPv6Address) -> Iterator[IPv4Address]:
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    if address in _TRANSLATED or address in _COMPATIBLE:
        yield IPv4Address(int(address) & 0xFFFFFFFF)
