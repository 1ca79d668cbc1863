"""Writes checkpoints of the state with its ledger, and finds the one to begin with."""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import json
import os
import re
import sys
import time
from typing import IO, Any, BinaryIO, Dict, Iterator, List, Optional

import torch

from .doubt import Error
from .leases import settle
from .session import Session, current

_KIND = "elasticdl-checkpoint-1"
#: How long after a failure of the storage a checkpoint is tried again, in seconds.
RETRY = 5.0


class Checkpoints:
    """Writes one checkpoint file, by one rank, atomically."""

    def __init__(self, path: str, every: int, same_data: bool = False) -> None:
        self.same_data = same_data
        self.path = os.path.join(path, "checkpoint.pt") if os.path.isdir(path) or path.endswith(os.sep) else path
        self.every = every
        # number of the job's claim on the file; 0: it has none
        self._claim = 0
        # when a checkpoint is tried again whose storage has failed
        self._again: Optional[float] = None

    def resume(self, session: Session) -> None:
        """Let the process arrive with the state on disk; it is read when the state is
        needed."""
        self._claim = session.claim(self.path)
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
        """Returns the state that belongs to the round and the ledger with which the process has
        arrived.

        Another rank may have put a newer one in its place since. The open file stays what it was,
        but not on every network file system.
        """
        try:
            file.seek(0)
            saved = self._read(file)
        except (OSError, Error) as e:
            session.doubt("the checkpoint to resume no longer exists, there may be a newer one: %s" % e)
        if saved["round"] != session.round:
            session.doubt(
                "the checkpoint that was to be resumed has round %d now, and had %d" % (saved["round"], session.round)
            )
        return saved["state"]

    def _read(self, file: BinaryIO) -> Dict[str, Any]:
        try:
            saved = torch.load(file, map_location="cpu", weights_only=False)
        except Exception as e:
            raise Error("checkpoint %s cannot be read: %s; remove it to start over" % (self.path, e)) from e
        if not isinstance(saved, dict) or saved.get("kind") != _KIND:
            raise Error("%s is not a checkpoint of elasticdl.checkpoint(); give another path" % self.path)
        cut = saved.get("cut")
        if cut is not None and min(cut["size"], cut["records_per_task"]) < 1:
            raise Error(
                "checkpoint %s is of a data set with %s, which is impossible; give another path" % (self.path, cut)
            )
        return saved

    def write(self, session: Session, state: Any) -> str:
        """Writes the state to a temporary file and renames it. Returns why it is not renamed, "" if
        it is: the processes of a later world may have written a newer one meanwhile."""
        os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
        beside = "%s.%d.%d.tmp" % (self.path, session.world.rank, os.getpid())
        try:
            with open(beside, "wb") as f:
                torch.save({"kind": _KIND, "time": time.time(), "round": session.round, "settled": session.settled,
                            "ledger": session._stretches(), "cut": session.cut, "state": state.collect()}, f)
                f.flush()
                os.fsync(f.fileno())
            with self._alone() as written:
                self._check_owner()
                newest, own = _world(written), [self._claim, session.world.formation]
                if newest > own:
                    return "formation %d has written a checkpoint since" % newest[1]
                if newest < own and written is not None:
                    os.pwrite(written, (json.dumps(own).ljust(62) + "\n").encode(), 0)
                os.replace(beside, self.path)
            self._again = None
            session.saved(self.path)
            return ""
        finally:
            if os.path.exists(beside):
                os.unlink(beside)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[Optional[int]]:
        """Keeps other processes from replacing the checkpoint, where the file system can. Gives the
        file that has the world of the newest one, None if the job has no claim."""
        if not self._claim:
            yield None
            return
        file = os.open(os.path.join(self.path + ".owner", "written"), os.O_RDWR | os.O_CREAT, 0o666)
        with open(file, "r+b", buffering=0) as f:
            _lock(f)
            yield file

    def _check_owner(self) -> None:
        """Raises an error if another job has claimed the file since this one did: its checkpoint
        must not be replaced."""
        owners = self.path + ".owner"
        names = [n for n in os.listdir(owners) if re.fullmatch(r"owner-\d{8,}", n)] if self._claim else []
        newest = max(names, key=lambda n: int(n[6:]), default="")
        if newest and int(newest[6:]) > self._claim:
            with open(os.path.join(owners, newest)) as f:
                owner = json.load(f)["owner"]
            raise Error(
                "checkpoint %s was taken over by job %s (UID %s): give each job a checkpoint of its own"
                % (self.path, owner["name"], owner["job"])
            )

    def attempt(self, session: Session, state: Any) -> None:
        """Writes a checkpoint, unless the storage fails, as when a disk is full: then the training
        goes on.

        The agent gets a report, and the checkpoint is tried again after a round that ends ``RETRY``
        seconds later, or when the next is due.
        """
        try:
            self.write(session, state)
        except Exception as e:
            failure = _of_storage(e)
            if failure is None:
                raise
            self._again = time.monotonic() + RETRY
            session.unsaved(self.path, str(failure))

    def due(self, session: Session) -> bool:
        """Reports whether this rank is to write a checkpoint after this round."""
        if session.world.rank != 0 or not self.every:
            return False
        return session.round % self.every == 0 or self._again is not None and time.monotonic() >= self._again

    def lacks(self, session: Session) -> bool:
        """Reports whether the last round of the training has no checkpoint."""
        return self.every > 0 and (session.round % self.every != 0 or self._again is not None)


#: Errors of a path that is wrong, and not of a storage that fails: no later attempt would succeed.
_WRONG_PATH = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.ENAMETOOLONG,
    errno.ELOOP,
}


def _lock(file: IO[bytes]) -> None:
    """Locks a file until it is closed, unless the file system has no locks, or who has the lock is
    stopped by a signal."""
    limit = time.monotonic() + 10
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= limit:
                return
            time.sleep(0.05)
        except OSError:
            return


def _world(file: Optional[int]) -> List[int]:
    """Returns the claim and the formation that are in a file, none if it has no such numbers."""
    try:
        numbers = json.loads(os.pread(file, 100, 0)) if file is not None else []
        return [int(n) for n in numbers] if len(numbers) == 2 else []
    except (TypeError, ValueError):
        return []


def _of_storage(e: Optional[BaseException]) -> Optional[OSError]:
    """Returns the failure of the storage that an exception is of, or was raised after: torch raises
    others then."""
    while e is not None and not isinstance(e, OSError):
        e = e.__cause__ or e.__context__
    return e if e is not None and e.errno not in _WRONG_PATH else None


declared: Optional[Checkpoints] = None
state: Any = None  # of the loop that runs
# for a checkpoint, in a round that has begun: it is written when the round is done
_asked = False


def checkpoint(path: Optional[str] = None, every: int = 1000, same_data: bool = False) -> None:
    """Declares where checkpoints are kept, before :func:`init`; without a path, writes one now
    (rank 0 does).

    If the storage fails, as when a disk is full, the training goes on: the status says why, and the
    checkpoint is tried again.

    In the middle of a round, from the batch to :func:`step`, the model may have records that are
    not credited yet: then the checkpoint is written by that ``step()``.

    ``path`` is a file, or a directory that exists. ``every`` is in rounds, and the last round
    counts; 0 writes only when asked. If a checkpoint is there, ``init`` resumes it: its records are
    not trained on again. It is unpickled: use only what you trust.

    A checkpoint in the middle of an epoch is of one data set: ``size``, ``records_per_task``,
    ``shuffle`` and ``seed``. A script that declares another one is refused. ``same_data`` accepts a
    checkpoint of an older version, which does not name its data set.
    """
    global declared, _asked
    if path is not None:
        from . import session

        if session._session is not None:
            raise Error("call elasticdl.checkpoint(%r) before elasticdl.init(), which resumes it" % path)
        declared = Checkpoints(path, every, same_data)
        return
    if declared is None or state is None:
        raise Error(
            "checkpoint() writes the State of a function under @elasticdl.run; declare checkpoint(path) before init()"
        )
    now = current()
    if now.world.rank != 0:
        return
    if now.headers or now.half:
        _asked = True
    else:
        declared.attempt(now, state)


def after_round() -> None:
    """Writes a checkpoint when one is due, or was asked for in the round."""
    global _asked
    session = current()
    if declared is None or state is None:
        return
    # also of this rank in a former world, where it was rank 0
    asked, _asked = _asked, False
    if asked or declared.due(session):
        declared.attempt(session, state)


@atexit.register
def _unwritten() -> None:
    """Says that a checkpoint was not written that the script had asked for."""
    if _asked:
        sys.stderr.write(
            "elasticdl: no checkpoint was written by the last checkpoint(): step() has not ended the round in which it was called\n"
        )


def before_end() -> str:
    """Writes a checkpoint before this process is ended, whatever ``every`` says. Returns why it
    does not, "" if it does."""
    if declared is None or state is None:
        return "no function under @elasticdl.run has begun"
    try:
        return declared.write(current(), state)
    except Exception as e:
        raise _of_storage(e) or e


def after_training() -> None:
    """Writes a checkpoint of the end, so that a process that is lost after it does not cost the
    training."""
    global _asked
    session = current()
    if _asked and (session.headers or session.half):
        raise Error(
            "checkpoint() was called in a round that step() has not ended: call step() before the training function returns"
        )
    if declared is None or state is None:
        return
    # in a round that the end of a world cut off
    asked, _asked = _asked, False
    if asked or session.world.rank == 0 and declared.lacks(session):
        declared.attempt(session, state)
