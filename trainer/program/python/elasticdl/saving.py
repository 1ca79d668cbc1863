"""Writes checkpoints of the state with its ledger, and finds the one to begin with."""

from __future__ import annotations

import os
import time
from typing import Any, BinaryIO, Dict, Optional

import torch

from .doubt import Error
from .session import Session, current

_KIND = "elasticdl-checkpoint-1"


class Checkpoints:
    """Writes one checkpoint file, by one rank, atomically."""

    def __init__(self, path: str, every: int) -> None:
        self.path = os.path.join(path, "checkpoint.pt") if os.path.isdir(path) or path.endswith(os.sep) else path
        self.every = every

    def resume(self, session: Session) -> None:
        """Has the process arrive with the state that is on disk; it is read when the state is needed."""
        try:
            file = open(self.path, "rb")
        except FileNotFoundError:
            return
        saved = self._read(file)
        session.round, session.settled = saved["round"], saved["settled"]
        session.ledger = {(e, n): done for e, n, done in saved["ledger"]}
        session.loaded = lambda: self._state(file, session)

    def _state(self, file: BinaryIO, session: Session) -> Any:
        """Returns the state that belongs to the round and the ledger with which the process has arrived.

        Another rank may have put a newer one in its place since. The open file stays what it was, but not on every network file system.
        """
        try:
            file.seek(0)
            saved = self._read(file)
        except (OSError, Error) as e:
            session.doubt("the checkpoint that was to be resumed is gone, there may be a newer one: %s" % e)
        if saved["round"] != session.round:
            session.doubt("the checkpoint that was to be resumed has round %d now, and had %d" % (saved["round"], session.round))
        return saved["state"]

    def _read(self, file: BinaryIO) -> Dict[str, Any]:
        try:
            saved = torch.load(file, map_location="cpu", weights_only=False)
        except Exception as e:
            raise Error("checkpoint %s cannot be read: %s; remove it to begin anew" % (self.path, e)) from e
        if not isinstance(saved, dict) or saved.get("kind") != _KIND:
            raise Error("%s is not a checkpoint of elasticdl.checkpoint(); give another path" % self.path)
        return saved

    def write(self, session: Session, state: Any) -> None:
        """Writes the state to a temporary file and renames it."""
        os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
        beside = "%s.%d.tmp" % (self.path, os.getpid())
        try:
            with open(beside, "wb") as f:
                torch.save({"kind": _KIND, "time": time.time(), "round": session.round, "settled": session.settled,
                            "ledger": session._stretches(), "state": state.collect()}, f)
                f.flush()
                os.fsync(f.fileno())
            os.replace(beside, self.path)
        finally:
            if os.path.exists(beside):
                os.unlink(beside)


declared: Optional[Checkpoints] = None
state: Any = None  # of the loop that runs


def checkpoint(path: Optional[str] = None, every: int = 1000) -> None:
    """Declares where checkpoints are kept, before :func:`init`; without a path, writes one now (rank 0 does).

    ``path`` is a file, or a directory that exists. ``every`` is in rounds, and the last round counts; 0 writes only when
    asked. If a checkpoint is there, ``init`` resumes it: its records are not trained on again. It is unpickled: use only what you trust.
    """
    global declared
    if path is not None:
        from . import session

        if session._session is not None:
            raise Error("call elasticdl.checkpoint(%r) before elasticdl.init(), which resumes it" % path)
        declared = Checkpoints(path, every)
        return
    if declared is None or state is None:
        raise Error("checkpoint() writes the State of a function under @elasticdl.run; declare checkpoint(path) before init()")
    if current().world.rank == 0:
        declared.write(current(), state)


def after_round() -> None:
    """Writes a checkpoint when one is due."""
    session = current()
    if declared is not None and state is not None and declared.every and session.round % declared.every == 0 and session.world.rank == 0:
        declared.write(session, state)


def after_training() -> None:
    """Writes a checkpoint of the end, so that a process that is lost after it does not cost the training."""
    session = current()
    if declared is not None and state is not None and declared.every and session.round % declared.every and session.world.rank == 0:
        declared.write(session, state)
