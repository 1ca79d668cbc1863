"""Checkpoints of the state with its ledger."""

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
from .spent import CHECKPOINT

_KIND = "elasticdl-checkpoint-1"
#: Time between a failure of the storage and the next attempt, in seconds.
RETRY = 5.0


class Checkpoints:
    """The checkpoint file of a job, which one rank replaces atomically.

    ``every`` is the number of rounds from one checkpoint to the next; 0: only on request.
    """

    def __init__(self, path: str, every: int, same_data: bool = False) -> None:
        self.same_data = same_data
        self.path = os.path.join(path, "checkpoint.pt") if os.path.isdir(path) or path.endswith(os.sep) else path
        self.every = every
        # number of the job's claim on the file; 0: no claim
        self._claim = 0
        # time of the next attempt after the storage has failed; None: it has not
        self._again: Optional[float] = None

    def resume(self, session: Session) -> None:
        """Take round and ledger from the checkpoint, if there is one.

        The state itself is read when it is needed. The job claims the checkpoint first. Raise Error
        if it belongs to another job, or cannot be read.
        """
        self._claim = session.claim(self.path)
        session.origin, session.same_data = "checkpoint %s" % self.path, self.same_data
        self.look(session)

    def look(self, session: Session) -> None:
        """Take round and ledger from the newest checkpoint. Raise Error if it cannot be read."""
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
        """Return the state that belongs to the round with which the process has arrived.

        Another rank may have replaced the checkpoint. The open file stays unchanged then, but not
        on every network file system: a process that finds another round in it ends with ``DOUBT``.
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
        """Write the state to a temporary file and rename it; return why it was not renamed, or "".

        It is not renamed if processes of a later world have written a newer checkpoint meanwhile.
        Raise Error if another job has claimed the checkpoint. A failure of the storage raises the
        errors of torch or the file system.
        """
        os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
        beside = "%s.%d.%d.tmp" % (self.path, session.world.rank, os.getpid())
        try:
            with open(beside, "wb") as f:
                torch.save({"kind": _KIND, "time": time.time(), "round": session.round, "settled": session.settled,
                            "ledger": session._ledger_rows(), "cut": session.cut, "state": state.collect()}, f)
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
        """Keep other processes from replacing the checkpoint, if the file system has locks.

        Yield the descriptor of the file that names the world of the newest checkpoint; None if the
        job has no claim.
        """
        if not self._claim:
            yield None
            return
        file = os.open(os.path.join(self.path + ".owner", "written"), os.O_RDWR | os.O_CREAT, 0o666)
        with open(file, "r+b", buffering=0) as f:
            _lock(f)
            yield file

    def _check_owner(self) -> None:
        """Raise Error if another job has claimed the checkpoint since this one did."""
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
        """Write a checkpoint, or report that the storage fails, as when a disk is full.

        The training continues then, and the agent gets a report. The checkpoint is tried again
        after a round that ends ``RETRY`` seconds later, or when the next is due. Other errors are
        raised.
        """
        try:
            with CHECKPOINT:
                self.write(session, state)
        except Exception as e:
            failure = _of_storage(e)
            if failure is None:
                raise
            self._again = time.monotonic() + RETRY
            session.unsaved(self.path, str(failure))

    def due(self, session: Session) -> bool:
        """Return whether this rank must write a checkpoint after this round."""
        if session.world.rank != 0 or not self.every:
            return False
        return session.round % self.every == 0 or self._again is not None and time.monotonic() >= self._again

    def lacks(self, session: Session) -> bool:
        """Return whether the last round of the training has no checkpoint."""
        return self.every > 0 and (session.round % self.every != 0 or self._again is not None)


#: Errors of a wrong path. They are no failures of the storage: no later attempt would succeed.
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
    """Lock a file until it is closed.

    Continue without the lock if the file system has none, or after 10 seconds: the process that
    holds it may be stopped by a signal.
    """
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
    """Return the claim and the world's number from a file, [] if it has none."""
    try:
        numbers = json.loads(os.pread(file, 100, 0)) if file is not None else []
        return [int(n) for n in numbers] if len(numbers) == 2 else []
    except (TypeError, ValueError):
        return []


def _of_storage(e: Optional[BaseException]) -> Optional[OSError]:
    """Return the failure of the storage that caused an exception, None if there is none.

    torch raises other exceptions after such a failure.
    """
    while e is not None and not isinstance(e, OSError):
        e = e.__cause__ or e.__context__
    return e if e is not None and e.errno not in _WRONG_PATH else None


declared: Optional[Checkpoints] = None
state: Any = None  # State of the current training function
# A checkpoint was requested in an open round. It is written at the end of the round.
_asked = False


def checkpoint(path: Optional[str] = None, every: int = 1000, same_data: bool = False) -> None:
    """Declare the file for checkpoints, before :func:`init`; without a path, write one now.

    ``path`` is a file, or a directory that exists. ``every`` is in rounds, and the last round
    counts, too; 0 writes only on request. If the file exists, ``init`` resumes it, and its records
    are not trained on again. It is unpickled: use only files that you trust.

    Without a path only rank 0 writes. In the middle of a round, from the batch to :func:`step`, the
    model may have records that are not credited yet: then that ``step()`` writes the checkpoint. If
    the storage fails, as when a disk is full, the training continues: the status shows the reason,
    and the checkpoint is tried again.

    A checkpoint in the middle of an epoch is of one data set: ``size``, ``records_per_task``,
    ``shuffle`` and ``seed``. A script that declares another one gets an Error. ``same_data``
    accepts a checkpoint of an older version, which does not name its data set.

    Raise Error if ``path`` is given after ``init``, or if there is no path and no state to write:
    no declared checkpoint, or no function under :func:`run`.
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
    """Write a checkpoint if one is due, or was requested in the round."""
    global _asked
    session = current()
    if declared is None or state is None:
        return
    # The request may be of an earlier world, in which this rank was rank 0.
    asked, _asked = _asked, False
    if asked or declared.due(session):
        declared.attempt(session, state)


@atexit.register
def _unwritten() -> None:
    """Print a warning if a checkpoint that the script requested was not written."""
    if _asked:
        sys.stderr.write(
            "elasticdl: no checkpoint was written by the last checkpoint(): step() has not ended the round in which it was called\n"
        )


def before_end() -> str:
    """Write a checkpoint before this process is ended, for any ``every``; return why not, or "".

    Raise the failure of the storage, or the other error of the attempt.
    """
    if declared is None or state is None:
        return "no function under @elasticdl.run has begun"
    try:
        return declared.write(current(), state)
    except Exception as e:
        raise _of_storage(e) or e


def after_training() -> None:
    """Write a checkpoint of the end of the training, unless its last round has one.

    A process that is lost afterwards then does not cost the training. Raise Error if a checkpoint
    was requested in a round that ``step()`` has not ended.
    """
    global _asked
    session = current()
    if _asked and (session.headers or session.half):
        raise Error(
            "checkpoint() was called in a round that step() has not ended: call step() before the training function returns"
        )
    if declared is None or state is None:
        return
    # The request may be of a round that the end of a world interrupted.
    asked, _asked = _asked, False
    if asked or session.world.rank == 0 and declared.lacks(session):
        declared.attempt(session, state)
