"""Settings: what a confined process may write, open and reach. Also receives its listeners."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

MOST_ADDRESSES = 64
"""Most addresses of a `Reach`; one message can carry more descriptors than this."""


@dataclass(frozen=True, kw_only=True)
class Reach:
    """The only addresses that a process reaches: IPv4 addresses and ports in its own network.

    The supervisor makes a listener for each before the program starts, and sends their descriptors
    over the socket `link`, in one message, in the order of `addresses`. The process sees
    the file `hosts` in place of /etc/hosts.
    """

    link: int
    addresses: tuple[tuple[str, int], ...]
    hosts: str


JOURNAL, JOURNAL_ENDS = "kopt.db", ("", "-wal", "-shm")
"""The name of a workspace's journal, and the ends of the names of its files."""


@dataclass(frozen=True, kw_only=True)
class Confine:
    """Where a process may write, and whether it has a network and GPUs; needs namespaces.

    Without namespaces the process runs unconfined, or fails if `required`. `reach` replaces
    `network`. Of the device files of single GPUs it may open those in `nodes`, or all if that is
    empty. `binds` are pairs: a writable folder, and the path at which the process sees it.
    `hidden` folders appear empty, except for the folders inside them that the process works in;
    `hidden` files cannot be opened, nor can the journals in folders around its own.
    """

    writable: tuple[str, ...] = ()
    binds: tuple[tuple[str, str], ...] = ()
    hidden: tuple[str, ...] = ()
    network: bool = False
    reach: Reach | None = None
    cards: bool = True
    nodes: tuple[str, ...] = ()
    required: bool = False


def journals_above(*paths: str) -> list[str]:
    """Return the journals in the folders that contain these paths.

    A process that may open one can lock it, and so stop the engine.
    """
    folders = dict.fromkeys(parent for path in paths for parent in Path(path).absolute().parents)
    return [str(folder / f"{JOURNAL}{end}") for folder in folders for end in JOURNAL_ENDS
            if (folder / JOURNAL).exists()]


def receive_listeners(link: socket.socket, count: int) -> list[socket.socket]:
    """Wait for a process's `count` listeners; return none if it is unconfined or did not start."""
    try:
        _, descriptors, _, _ = socket.recv_fds(link, 64, MOST_ADDRESSES, socket.MSG_CMSG_CLOEXEC)
    except OSError:  # closed at this end
        return []
    sockets = []
    for descriptor in descriptors:
        try:
            sockets.append(socket.socket(fileno=descriptor))
        except OSError:  # no socket
            os.close(descriptor)
    if len(sockets) == count and all(_is_listener(each) for each in sockets):
        return sockets
    for each in sockets:
        each.close()
    return []


def _is_listener(sock: socket.socket) -> bool:
    return (sock.family, sock.type) == (socket.AF_INET, socket.SOCK_STREAM) \
        and bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
