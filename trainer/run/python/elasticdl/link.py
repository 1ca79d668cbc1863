"""Exchanges JSON lines with the agent over one stream socket: requests with replies, and messages
that the agent sends on its own."""

from __future__ import annotations

import json
import os
import socket
import threading
from typing import Any, Callable, Dict, Optional

from .doubt import Error

Message = Dict[str, Any]


class Cancelled(Error):
    """Is raised by a request that was cancelled because its formation ended."""


class _Call:
    """Waits for one reply."""

    def __init__(self, formation: Optional[int]) -> None:
        self.formation = formation
        self.ready = threading.Event()
        self.reply: Message = {}


def dial(address: str) -> socket.socket:
    """Connects to ``address``, the path of a unix socket."""
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.connect(address)
    return s


class Link:
    """Is the connection of one process to its agent. Any thread may call it.

    ``heard`` is called in the reader's thread with each message that is not a reply; ``lost`` once,
    when the connection ends. A child made by fork must not use it: see :meth:`disown`.
    """

    def __init__(self, address: str, heard: Callable[[Message], None], lost: Callable[[], None]) -> None:
        self._socket = dial(address)
        self._socket.settimeout(None)
        self._heard, self._lost = heard, lost
        self._lock = threading.Lock()
        self._calls: Dict[int, _Call] = {}
        self._number = 0
        self._ended = 0  # formations up to this one are over
        self._open = True
        self.inode = os.fstat(self._socket.fileno()).st_ino

    def start(self) -> None:
        threading.Thread(target=self._read, name="elasticdl-agent", daemon=True).start()

    def send(self, op: str, **fields: Any) -> None:
        """Sends a message that has no reply."""
        fields["op"] = op
        line = json.dumps(fields, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            if not self._open:
                return
            try:
                self._socket.sendall(line)
            except OSError:
                # the reader sees the end of the connection
                pass

    def ask(self, op: str, formation: Optional[int] = None, timeout: Optional[float] = None, **fields: Any) -> Any:
        """Sends a request and returns the ``ok`` of its reply.

        A request of a ``formation`` is :class:`Cancelled` when that formation ends. ``timeout`` is
        in seconds.
        """
        call = _Call(formation)
        with self._lock:
            if formation is not None and formation <= self._ended:
                raise Cancelled("formation %d is over" % formation)
            self._number += 1
            number = self._number
            self._calls[number] = call
        if formation is not None:
            fields["f"] = formation
        self.send(op, q=number, **fields)
        if not call.ready.wait(timeout):
            with self._lock:
                self._calls.pop(number, None)
            raise Error("the agent did not answer %r within %gs" % (op, timeout or 0))
        if "ok" in call.reply:
            return call.reply["ok"]
        if call.reply.get("cancelled"):
            raise Cancelled(call.reply.get("err", "cancelled"))
        raise Error("the agent refused %r: %s" % (op, call.reply.get("err", "no reason given")))

    def cancel(self, formation: int) -> None:
        """Ends all requests of formations up to this one; later ones of them fail at once."""
        with self._lock:
            self._ended = max(self._ended, formation)
            over = [n for n, c in self._calls.items() if c.formation is not None and c.formation <= self._ended]
            calls = [self._calls.pop(n) for n in over]
        for c in calls:
            c.reply = {"err": "the world changed", "cancelled": True}
            c.ready.set()

    def disown(self) -> None:
        """Forgets the socket in a forked child, whose parent goes on using it. Runs without locks:
        threads have ended."""
        self._open = False
        try:
            null = os.open(os.devnull, os.O_RDWR)
            # the number stays taken, the connection is the parent's alone
            os.dup2(null, self._socket.fileno())
            os.close(null)
        except OSError:
            pass

    def _read(self) -> None:
        try:
            with self._socket.makefile("rb") as lines:
                for line in lines:
                    message = json.loads(line)
                    if "q" in message:
                        with self._lock:
                            call = self._calls.pop(message["q"], None)
                        if call is not None:
                            call.reply = message
                            call.ready.set()
                    else:
                        self._heard(message)
        except (OSError, ValueError):
            pass
        self._lost()
