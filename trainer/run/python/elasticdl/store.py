"""A torch.distributed store that the agent keeps.

It needs no port and no rank that hosts it, and its waits can be cancelled.
"""

from __future__ import annotations

import base64
import sys
import threading
from datetime import timedelta
from typing import Any, Iterable, List, Optional, Union

import torch.distributed as dist

from .doubt import Error
from .link import Link

#: A rank sets _COME when it is ready to construct its group. If its process exits with 0 before
#: that, its agent sets _ENDED for the rank, then _ENDED for "any", then _COME.
_COME, _ENDED = "elasticdl/come/%d", "elasticdl/ended/%s"


def _text(value: Union[bytes, str]) -> str:
    return base64.b64encode(value.encode() if isinstance(value, str) else bytes(value)).decode()


def names(ranks: List[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


class AgentStore(dist.Store):
    """The keys of one world, kept by the agent. Each world begins with an empty store."""

    def __init__(self, link: Link, formation: int) -> None:
        super().__init__()
        self._link, self._formation = link, formation
        self._patience = timedelta(seconds=300)

    def _ask(self, op: str, timeout: Optional[timedelta] = None, **fields: Any) -> Any:
        return self._link.ask(
            op, formation=self._formation, timeout=(timeout or self._patience).total_seconds(), **fields
        )

    def set(self, key: str, value: Union[bytes, str]) -> None:
        self._ask("set", k=key, v=_text(value))

    def meet(self, rank: int, size: int) -> List[int]:
        """Wait without a limit until all ranks are ready; return those that ended instead."""
        self._ask("set", k=_COME % rank, v=_text("1"))
        self._link.ask("wait", formation=self._formation, ks=[_COME % r for r in range(size)])
        return self._of(range(size), _ENDED) if self.check([_ENDED % "any"]) else []

    def missing(self, size: int) -> List[int]:
        """Return the ranks that are not ready yet."""
        come = self._of(range(size), _COME)
        return [r for r in range(size) if r not in come]

    def _of(self, ranks: Iterable[int], key: str) -> List[int]:
        return [r for r in ranks if self.check([key % r])]

    def get(self, key: str) -> bytes:
        return base64.b64decode(self._ask("get", k=key))

    def add(self, key: str, amount: int) -> int:
        return int(self._ask("add", k=key, n=amount))

    def check(self, keys: List[str]) -> bool:
        return bool(self._ask("check", ks=keys))

    def wait(self, keys: List[str], timeout: Optional[timedelta] = None) -> None:
        self._ask("wait", timeout, ks=keys)

    def compare_set(self, key: str, expected: Union[bytes, str], value: Union[bytes, str]) -> bytes:
        return base64.b64decode(self._ask("compare_set", k=key, e=_text(expected), v=_text(value)))

    def delete_key(self, key: str) -> bool:
        return bool(self._ask("delete", k=key))

    def num_keys(self) -> int:
        return int(self._ask("num"))

    def set_timeout(self, timeout: timedelta) -> None:
        self._patience = timeout

    # Further methods for newer versions of torch, by the methods above.

    def multi_get(self, keys: List[str]) -> List[bytes]:
        return [self.get(k) for k in keys]

    def multi_set(self, keys: List[str], values: List[Union[bytes, str]]) -> None:
        for k, v in zip(keys, values):
            self.set(k, v)

    def has_extended_api(self) -> bool:
        return False

    def clone(self) -> "AgentStore":
        return AgentStore(self._link, self._formation)


def meet(store: AgentStore, rank: int, size: int, patience: float) -> None:
    """Wait without a limit until all ranks are ready, and report those that are not after a while.

    ``patience`` is in seconds. Raise Error if the world ends before, or if a rank has ended.
    """
    note = threading.Timer(patience, _note, (store, size))
    note.daemon = True
    note.start()
    try:
        ended = store.meet(rank, size)
    finally:
        note.cancel()
    if ended:
        raise Error("%s ended before init()" % names(ended))


def _note(store: AgentStore, size: int) -> None:
    try:
        missing = store.missing(size)
    except Error:
        return  # the world is over
    if missing:
        sys.stderr.write("elasticdl: waiting for %s of %d to call init()\n" % (names(missing), size))
        sys.stderr.flush()
