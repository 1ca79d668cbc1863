"""Writes checkpoints of the state with its ledger, and finds the one to begin with."""

from __future__ import annotations

import atexit
import os
import sys
import time
from typing import Any, BinaryIO, Dict, Optional

import torch

from .doubt import Error
from .leases import settle
from .session import Session, current

_KIND = "elasticdl-checkpoint-1"


class Checkpoints:
    """Writes one checkpoint file, by one rank, atomically."""

    def __init__(self, path: str, every: int, same_data: bool = False) -> None:
        self.same_data = same_data
        self.path = os.path.join(path, "checkpoint.pt") if os.path.isdir(path) or path.endswith(os.sep) else path
        self.every = every

    def resume(self, session: Session) -> None:
        """Has the process arrive with the state that is on disk; it is read when the state is needed."""
        session.claim(self.path)
        session.origin, session.same_data = "checkpoint %s" % self.path, self.same_data
        try:
            file = open(self.path, "rb")
        except FileNotFoundError:
            return
        saved = self._read(file)
        session.round, session.cut = saved["round"], saved.get("cut")
        ledger, settled = {(e, n): done for e, n, done in saved["ledger"]}, saved["settled"]
        if session.cut is not None:
            settled = settle(session.cut, ledger, settled)
        session.settled, session.ledger = settled, {k: done for k, done in ledger.items() if k[0] >= settled}
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
        cut = saved.get("cut")
        if cut is not None and min(cut["size"], cut["records_per_task"]) < 1:
            raise Error("checkpoint %s is of a data set with %s, which is impossible; give another path" % (self.path, cut))
        return saved

    def write(self, session: Session, state: Any) -> None:
        """Writes the state to a temporary file and renames it."""
        os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
        beside = "%s.%d.%d.tmp" % (self.path, session.world.rank, os.getpid())
        try:
            with open(beside, "wb") as f:
                torch.save({"kind": _KIND, "time": time.time(), "round": session.round, "settled": session.settled,
                            "ledger": session._stretches(), "cut": session.cut, "state": state.collect()}, f)
                f.flush()
                os.fsync(f.fileno())
            os.replace(beside, self.path)
            session.saved(self.path)
        finally:
            if os.path.exists(beside):
                os.unlink(beside)


declared: Optional[Checkpoints] = None
state: Any = None  # of the loop that runs
_asked = False     # for a checkpoint, in a round that has begun: it is written when the round is done


def checkpoint(path: Optional[str] = None, every: int = 1000, same_data: bool = False) -> None:
    """Declares where checkpoints are kept, before :func:`init`; without a path, writes one now (rank 0 does).

    In the middle of a round, from the batch to :func:`step`, the model may have records that are not credited yet: then
    the checkpoint is written by that ``step()``.

    ``path`` is a file, or a directory that exists. ``every`` is in rounds, and the last round counts; 0 writes only when
    asked. If a checkpoint is there, ``init`` resumes it: its records are not trained on again. It is unpickled: use only what you trust.

    A checkpoint in the middle of an epoch is of one data set: ``size``, ``records_per_task``, ``shuffle`` and ``seed``.
    A script that declares another one is refused. ``same_data`` accepts a checkpoint of an older version, which does not
    name its data set.
    """
    global declared, _asked
    if path is not None:
        from . import session

        if session._session is not None:
            raise Error("call elasticdl.checkpoint(%r) before elasticdl.init(), which resumes it" % path)
        declared = Checkpoints(path, every, same_data)
        return
    if declared is None or state is None:
        raise Error("checkpoint() writes the State of a function under @elasticdl.run; declare checkpoint(path) before init()")
    now = current()
    if now.world.rank != 0:
        return
    if now.headers or now.half:
        _asked = True
    else:
        declared.write(now, state)


def after_round() -> None:
    """Writes a checkpoint when one is due, or was asked for in the round."""
    global _asked
    session = current()
    if declared is None or state is None:
        return
    asked, _asked = _asked, False  # also of this rank in a former world, where it was rank 0
    if asked or declared.every and session.round % declared.every == 0 and session.world.rank == 0:
        declared.write(session, state)


@atexit.register
def _unwritten() -> None:
    """Says that a checkpoint was not written that the script had asked for."""
    if _asked:
        sys.stderr.write("elasticdl: no checkpoint was written by the last checkpoint(): step() has not ended the round in which it was called\n")


def before_end() -> str:
    """Writes a checkpoint before this process is ended, whatever ``every`` says. Returns why it does not, "" if it does."""
    if declared is None or state is None:
        return "no function under @elasticdl.run has begun"
    declared.write(current(), state)
    return ""


def after_training() -> None:
    """Writes a checkpoint of the end, so that a process that is lost after it does not cost the training."""
    global _asked
    session = current()
    if _asked and (session.headers or session.half):
        raise Error("checkpoint() was called in a round that step() has not ended: call step() before the training function returns")
    if declared is None or state is None:
        return
    asked, _asked = _asked, False  # in a round that the end of a world cut off
    if asked or declared.every and session.round % declared.every and session.world.rank == 0:
        declared.write(session, state)
