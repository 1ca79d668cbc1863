"""Errors, and exit codes of a process that cannot be sure of its state.

To restart such a process is always correct. To continue may not be.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

#: The agent closed the connection: without it nobody assigns records to processes.
AGENT_GONE = 80
#: The process is not sure of its state, or cannot leave a dead group: start it again.
DOUBT = 81
#: The world changed and the backend cannot be re-formed in the process (NCCL, the default): start
#: it again.
RESTART = 83

#: The reason why nothing is saved if a script declares no checkpoint.
NO_CHECKPOINT = "the script declares no checkpoint: elasticdl.checkpoint(path) before elasticdl.init()"


class WorldChanged(BaseException):
    """The exception that leaves the training loop because the world changed.

    :func:`elasticdl.run` catches it and calls the loop again. It is not an ``Exception``, so that
    an ``except Exception`` of the script does not catch it.
    """


class Error(RuntimeError):
    """An error for wrong use of this package, and for a request that the agent refused."""


def leave(code: int, why: str) -> NoReturn:
    """Print ``why`` to stderr and exit with status ``code`` at once.

    No destructor runs, because it could wait for a dead peer.
    """
    try:
        sys.stdout.flush()
        sys.stderr.write("elasticdl: %s\n" % why)
        sys.stderr.flush()
    finally:
        os._exit(code)
