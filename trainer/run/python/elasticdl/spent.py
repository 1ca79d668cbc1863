"""The time of this process by its use, which heartbeats report to the agent.

Uses are nested, and time counts for the innermost one. A wait for other ranks within a wait for
records is a wait for records: the others have them.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Dict, List

_lock = threading.Lock()
_spent: Dict[str, float] = {}
_uses: List[str] = []
_since = 0.0


def _turn() -> None:
    """Add the time since the last change to the innermost use."""
    global _since
    now = time.monotonic()
    if _uses:
        _spent[_uses[-1]] = _spent.get(_uses[-1], 0.0) + now - _since
    _since = now


class _Use:
    """A context in which the time of this process counts for one use."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        with _lock:
            _turn()
            within_data = self._name == "peers" and _uses and _uses[-1] == "data"
            _uses.append("data" if within_data else self._name)

    def __exit__(self, *_: Any) -> None:
        with _lock:
            _turn()
            _uses.pop()


COMPUTE, DATA, PEERS = _Use("compute"), _Use("data"), _Use("peers")
CHECKPOINT, FORMING = _Use("checkpoint"), _Use("forming")


def report() -> Dict[str, int]:
    """Return the time of each use so far, in milliseconds. A use that lasts counts up to now."""
    with _lock:
        _turn()
        return {name: int(1000 * seconds) for name, seconds in _spent.items()}
