"""Cuts TCP connections: ``shutdown`` works on the connection, so copies in forked children do not
keep it alive."""

from __future__ import annotations

import os
import socket
from typing import Dict, Iterable, Set


def sockets() -> Dict[int, int]:
    """Returns the sockets of this process: inode to descriptor."""
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
    """Returns the TCP sockets of this network namespace that do not listen: inode to the address of
    the peer.

    Listeners are left out: shutting one down ends the process that serves on it.
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
    """Returns the address that /proc writes as 32-bit words of the machine's byte order."""
    raw = b"".join(bytes.fromhex(text[i:i + 8])[::-1] for i in range(0, len(text), 8))
    if len(raw) == 16 and raw[:12] == b"\0" * 10 + b"\xff\xff":
        raw = raw[12:]
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)


def local(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def shut(inodes: Iterable[int]) -> int:
    """Shuts the connections down, in both directions, and returns how many there were."""
    wanted, done = set(inodes), 0
    for inode, fd in sockets().items():
        if inode not in wanted:
            continue
        try:
            copy = os.dup(fd)
        except OSError:
            continue
        try:
            if os.fstat(copy).st_ino == inode:  # the descriptor may be another's by now
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
    """Closes this process's copies, for a forked child. The numbers stay taken, so that nobody
    closes another's file."""
    null = os.open(os.devnull, os.O_RDWR)
    for inode, fd in sockets().items():
        if inode in inodes:
            os.dup2(null, fd)
    os.close(null)
