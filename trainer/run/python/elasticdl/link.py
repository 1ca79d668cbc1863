"""The connection of a process to its agent: JSON lines over a stream socket.

There are requests with replies, and messages that the agent sends unasked.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from typing import Any, Callable, Dict, Optional

from .doubt import Error

Message = Dict[str, Any]


class Cancelled(Error):
    """An error of a request that was cancelled because its world ended."""


class _Call:
    """A request that waits for its reply."""

    def __init__(self, formation: Optional[int]) -> None:
        self.formation = formation
        self.ready = threading.Event()
        self.reply: Message = {}


def dial(address: str) -> socket.socket:
    """Connect to ``address``, the path of a Unix socket."""
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.connect(address)
    return s


class Link:
    """The connection of one process to its agent. Any thread may use it.

    ``heard`` is called in the reader's thread with each message that is not a reply. ``lost`` is
    called once, when the connection ends. A child made by fork must not use the connection: see
    :meth:`disown`.
    """

    def __init__(self, address: str, heard: Callable[[Message], None], lost: Callable[[], None]) -> None:
        self._socket = dial(address)
        self._socket.settimeout(None)
        self._heard, self._lost = heard, lost
        self._lock = threading.Lock()
        self._calls: Dict[int, _Call] = {}
        self._number = 0
        self._ended = 0  # the newest world that has ended
        self._open = True

    def start(self) -> None:
        threading.Thread(target=self._read, name="elasticdl-agent", daemon=True).start()

    def send(self, op: str, **fields: Any) -> None:
        """Send a message that has no reply. If the connection has ended, do nothing."""
        fields["op"] = op
        line = json.dumps(fields, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            if not self._open:
                return
            try:
                self._socket.sendall(line)
            except OSError:
                # The reader's thread reports the end of the connection.
                pass

    def ask(self, op: str, formation: Optional[int] = None, timeout: Optional[float] = None, **fields: Any) -> Any:
        """Send a request and return the ``ok`` of its reply.

        Raise Cancelled when the world with the number ``formation`` ends. Raise Error if the agent
        refuses the request, or does not answer within ``timeout`` seconds.
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
        """Cancel the requests of worlds up to the number ``formation``. Later ones fail at once."""
        with self._lock:
            self._ended = max(self._ended, formation)
            over = [n for n, c in self._calls.items() if c.formation is not None and c.formation <= self._ended]
            calls = [self._calls.pop(n) for n in over]
        for c in calls:
            c.reply = {"err": "the world changed", "cancelled": True}
            c.ready.set()

    def disown(self) -> None:
        """Detach a forked child from the socket, which its parent continues to use.

        No lock is taken: its owner may be a thread that does not exist in the child.
        """
        self._open = False
        try:
            null = os.open(os.devnull, os.O_RDWR)
            # The file descriptor remains in use, so that no other file gets its number.
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
