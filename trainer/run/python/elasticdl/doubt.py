"""Ends the process when it cannot be sure of its state: a restart is always right, going on may not
be."""

from __future__ import annotations

import os
import sys

#: The agent closed the connection: without it nobody assigns records to processes.
AGENT_GONE = 80
#: The process cannot tell what its state is, or cannot leave a dead group: start it again.
DOUBT = 81
#: The world changed and the backend cannot be re-formed in the process (NCCL, the default): start
#: it again.
RESTART = 83


class WorldChanged(BaseException):
    """Leaves the training loop because the world changed; :func:`elasticdl.run` catches it and
    calls the loop again.

    It is not an ``Exception``, so that a user's ``except Exception`` does not swallow it.
    """


class Error(RuntimeError):
    """Reports a wrong use of this package, or a request that the agent refused."""


def leave(code: int, why: str) -> None:
    """Ends the process at once, with no destructor that could wait for a dead peer."""
    try:
        sys.stdout.flush()
        sys.stderr.write("elasticdl: %s\n" % why)
        sys.stderr.flush()
    finally:
        os._exit(code)
