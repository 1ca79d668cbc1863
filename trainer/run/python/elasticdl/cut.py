"""Functions that cut this process's TCP connections.

They call ``shutdown``, which ends the connection itself. To close a socket would not be enough,
because copies of it in forked children keep the connection open.
"""

from __future__ import annotations

import os
import socket
from typing import Dict, Iterable, Set


def sockets() -> Dict[int, int]:
    """Return the sockets of this process: inode to file descriptor."""
    found: Dict[int, int] = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink("/proc/self/fd/" + name)
        except OSError:
            continue
        if target.startswith("socket:["):
            found[int(target[8:-1])] = int(name)
    return found


def connections() -> Dict[int, str]:
    """Return the TCP connections of this network namespace: inode to IP address of the peer.

    Listeners are omitted: to shut one down would end the process that serves on it.
    """
    found: Dict[int, str] = {}
    for path in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        try:
            with open(path) as lines:
                next(lines)
                for line in lines:
                    column = line.split()
                    if column[3] != "0A":
                        found[int(column[9])] = _address(column[2].split(":")[0])
        except (OSError, StopIteration):
            continue
    return found


def _address(text: str) -> str:
    """Return the IP address of which /proc writes the 32-bit words in the machine's byte order."""
    raw = b"".join(bytes.fromhex(text[i:i + 8])[::-1] for i in range(0, len(text), 8))
    if len(raw) == 16 and raw[:12] == b"\0" * 10 + b"\xff\xff":
        raw = raw[12:]
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)


def local(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def shut(inodes: Iterable[int]) -> int:
    """Shut down the connections with these inodes in both directions; return their number."""
    wanted, done = set(inodes), 0
    for inode, fd in sockets().items():
        if inode not in wanted:
            continue
        try:
            copy = os.dup(fd)
        except OSError:
            continue
        try:
            if os.fstat(copy).st_ino == inode:  # it may be another file by now
                s = socket.socket(fileno=copy)
                copy = -1
                try:
                    s.shutdown(socket.SHUT_RDWR)
                    done += 1
                finally:
                    s.close()
        except OSError:
            pass
        finally:
            if copy >= 0:
                os.close(copy)
    return done


def close(inodes: Set[int]) -> None:
    """Close this process's copies of the sockets with these inodes, for a forked child.

    Their file descriptors refer to /dev/null afterwards. So no other file gets one of these
    numbers, and later calls to close them harm nobody.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for inode, fd in sockets().items():
        if inode in inodes:
            os.dup2(null, fd)
    os.close(null)
