"""Gives a confined process a network of its own, in which only named addresses answer.

Listeners for these addresses are made here, before the untrusted program starts, and passed to the
owner, the process that asked for the program. A socket belongs to the network in which it was made:
the owner accepts the program's connections outside, and the program has no other way out. Standard
library only.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Sequence
from typing import Any

SIOCSIFADDR, SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8916, 0x8913, 0x8914, 1
LOOPBACK = "lo"
BACKLOG = 64


def pass_listeners(link: int, addresses: Sequence[Sequence[Any]]) -> None:
    """Make a listener for each (IPv4 address, port); send all of them in one message on `link`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        _bring_loopback_up(control)
        for number, address in enumerate(dict.fromkeys(host for host, _ in addresses)):
            if not address.startswith("127."):
                _add_address(control, f"{LOOPBACK}:{number}", address)
    listeners = [socket.create_server((host, port), backlog=BACKLOG) for host, port in addresses]
    with socket.socket(fileno=link) as owner:
        socket.send_fds(owner, [b"listeners"], [each.fileno() for each in listeners])
    for each in listeners:
        each.close()


def _bring_loopback_up(control: socket.socket) -> None:
    request = struct.pack("16sH14x", LOOPBACK.encode(), 0)
    flags: int = struct.unpack("16xH14x", fcntl.ioctl(control, SIOCGIFFLAGS, request))[0]
    fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14x", LOOPBACK.encode(), flags | IFF_UP))


def _add_address(control: socket.socket, label: str, address: str) -> None:
    fcntl.ioctl(control, SIOCSIFADDR, struct.pack(
        "16sHH4s8x", label.encode(), socket.AF_INET, 0, socket.inet_aton(address)))
