"""Checkpoints of the state with its ledger.

Rank 0 copies the state between two rounds, and a thread writes the copy while the training
continues. One copy exists at a time: a checkpoint that is due while the last one is still being
written is made after the first round that ends after that. Where the training has ended, or the
memory has no room for a copy, the state itself is written, and the script waits.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import os
import sys
import threading
import time
from typing import Any, BinaryIO, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch

from . import commits, shards
from .commits import RECORD, STATE, Commit
from .doubt import Error
from .leases import settle
from .link import Cancelled
from .places import Place, open_place
from .session import Session, current
from .shards import Plan
from .spent import CHECKPOINT
from .staging import Staging
from .states import _gather

_KIND = "elasticdl-checkpoint-2"
#: The kind of a single file, which older versions wrote.
_OLD_KIND = "elasticdl-checkpoint-1"
#: Time between a failure of the storage and the next attempt, in seconds.
RETRY = 5.0
#: Maximum wait for a checkpoint that is being written, when this process is restarted because the
#: world changed, in seconds.
PATIENCE = 10.0
#: Attempts to read the newest commit while others write newer ones.
READS = 10


class _Task(NamedTuple):
    """A checkpoint to be written: which commit, what its record says, and where its state is."""

    commit: Commit
    record: Dict[str, Any]
    values: Callable[[], Dict[str, Any]]
    plan: Optional[Plan]  # of sharded state; None: rank 0 writes all of it


def claim(session: Session, path: str) -> int:
    """Claim a checkpoint for the job, before it is read or written; return the claim's number.

    ``path`` is absolute, or a URL. Return 0 without an agent. Raise Error if it is another job's.
    """
    if session.link is None:
        return 0
    return int(session.link.ask("checkpoint", path=path).get("claim", 0))


class Checkpoints:
    """The checkpoint of a job: commits in a directory or bucket, which one rank writes.

    ``every`` is the number of rounds from one checkpoint to the next; 0: only on request.
    """

    def __init__(self, path: str, every: int, same_data: bool = False) -> None:
        self.same_data = same_data
        self.every = every
        # The single file that an older version wrote is read, and left unchanged.
        self._old = next((f for f in (path, os.path.join(path, "checkpoint.pt")) if os.path.isfile(f)), "")
        self.place: Place = open_place(path + ".commits" if self._old == path else path)
        self.path = self.place.name
        # number of the job's claim on the checkpoint; 0: no claim
        self._claim = 0
        # claim and formation of this process, if it has no agent; None: it has
        self._alone: Optional[Tuple[int, int]] = None
        self._writes = 0
        # time of the next attempt after the storage has failed, or the world has ended; None: none
        self._again: Optional[float] = None
        # one was due while another was being written
        self._late = False
        # newest round with a checkpoint of this process
        self._round = -1
        self._staging: Optional[Staging] = None
        self._thread: Optional[threading.Thread] = None
        # reported reason why the storage fails; "": it does not
        self._problem = ""
        # why the thread has failed; None: it has not
        self._failure: Optional[Exception] = None

    def resume(self, session: Session) -> None:
        """Take round and ledger from the newest commit, if there is one.

        The state itself is read when it is needed. The job claims the checkpoint first. Raise Error
        if it belongs to another job, or cannot be read.
        """
        self._claim = claim(session, self.path)
        session.origin, session.same_data = "checkpoint %s" % self.path, self.same_data
        if session.link is None:
            last = max(self._begun(), default=Commit(0, 0, 0, 0))
            self._alone = (last.claim, last.formation + 1)
        self.look(session)

    def look(self, session: Session) -> None:
        """Take round and ledger from the newest commit. Raise Error if it cannot be read."""
        begun = self._begun()
        for _ in range(READS):
            newest = commits.newest(begun)
            if newest is None:
                break
            if 0 < self._claim < newest.claim:
                raise Error(
                    "checkpoint %s has commits of claim %d, and files owner-… up to claim %d only: restore these files, or give checkpoint() another path"
                    % (self.path, newest.claim, self._claim)
                )
            try:
                self._open(session, newest)
                return
            except FileNotFoundError:
                begun = self._begun()  # another process has written a newer one, and removed this one
        else:
            raise Error("checkpoint %s cannot be read: files of its newest commit are missing; remove it" % self.path)
        if self._old:
            self._resume_old(session)

    def _begun(self) -> Dict[Commit, List[str]]:
        return commits.of(self.place.list(), self.place.list)

    def _open(self, session: Session, commit: Commit) -> None:
        """Take round and ledger from a commit. Raise FileNotFoundError if it is no longer there."""
        try:
            with self.place.read("%s/%s" % (commit.name, RECORD)) as file:
                record = json.load(file)
            if record["kind"] != _KIND or record["round"] != commit.round:
                raise ValueError("it is of another kind")
        except (ValueError, KeyError, TypeError) as e:
            raise self._unreadable(commit, RECORD, e) from e
        self._check_kind(session, record, self.path)
        if session.parted:
            session.loaded, session.commit_name = dict, commit.name  # State.sync reads it
        else:
            state = self.place.read("%s/%s" % (commit.name, STATE))
            session.loaded = lambda: self._state(commit, state, session)
        self._enter(session, record)
        self._round = commit.round

    def _check_kind(self, session: Session, record: Dict[str, Any], path: str) -> None:
        if bool(record.get("sharded")) != session.parted:
            kind = "sharded" if record.get("sharded") else "whole"
            asked = '"worker"' if session.replica else session.sharded
            raise Error(
                "checkpoint %s has %s state, and the script calls init(sharded=%s): give checkpoint() another path"
                % (path, kind, asked)
            )

    def _unreadable(self, commit: Commit, file: str, e: Exception) -> Error:
        return Error(
            "checkpoint %s cannot be read: %s/%s: %s; remove %s to start from the commit before it, if there is one"
            % (self.path, commit.name, file, e, commit.name)
        )

    def _enter(self, session: Session, record: Dict[str, Any]) -> None:
        session.round, session.cut = record["round"], record.get("cut")
        if session.cut is not None and min(session.cut["size"], session.cut["records_per_task"]) < 1:
            raise Error(
                "checkpoint %s is of a data set with %s, which is impossible; give another path"
                % (self.path, session.cut)
            )
        ledger = {(e, n): done for e, n, done in record["ledger"]}
        lengths = {int(number): n for number, n in record.get("lengths", {}).items()}  # JSON's keys are texts
        session.known = record["settled"], record.get("counted", 0), ledger, lengths, session.cut
        if session.cut is not None:
            session.settle(settle(session.cut, session.ledger, session.settled))

    def _state(self, commit: Commit, file: BinaryIO, session: Session) -> Any:
        """Return the state that belongs to the round with which the process has arrived.

        Another rank may have written a newer commit, and removed this one. The open file stays
        readable then, but not in a bucket, and not on every network file system: such a process
        ends with ``DOUBT``, to read the newer one.
        """
        try:
            with file:
                return load(file)
        except Exception as e:
            if commits.newest(self._begun()) != commit:
                session.doubt("the checkpoint to resume no longer exists, there is a newer one: %s" % e)
            raise self._unreadable(commit, STATE, e) from e

    def _resume_old(self, session: Session) -> None:
        try:
            with open(self._old, "rb") as file:
                saved = load(file)
        except Exception as e:
            raise Error("checkpoint %s cannot be read: %s; remove it to start over" % (self._old, e)) from e
        if not isinstance(saved, dict) or saved.get("kind") != _OLD_KIND:
            raise Error("%s is not a checkpoint of elasticdl.checkpoint(); give another path" % self._old)
        self._check_kind(session, saved, self._old)
        self._enter(session, saved)
        session.loaded = lambda: saved["state"]

    def write(self, session: Session, state: Any) -> str:
        """Write the state itself, without a copy; return why it is no checkpoint, or "".

        It is none if processes of a later world have written a newer one meanwhile. Raise Error if
        another job has claimed the checkpoint. A failure of the storage raises the errors of torch
        or the storage.
        """
        task = self._task(session, state)
        why = self._put(task, session)
        return why if task.plan is None else task.plan.await_end()

    def read_shards(self, session: Session, state: Any, name: str) -> None:
        """Read this rank's shards of a commit into the State, as State.sync does in a new world."""
        try:
            shards.load(self.place, name, state)
        except BaseException as e:  # torch's CheckpointException is no Exception
            newest = commits.newest(self._begun())
            if newest is None or newest.name != name:
                session.doubt("the checkpoint to resume no longer exists, there is a newer one: %s" % e)
            raise

    def _task(self, session: Session, state: Any) -> _Task:
        """Return the task of writing the state itself. All who write a part of it call this."""
        claim, formation = self._alone or (self._claim, session.world.formation)
        self._writes += 1
        record = {"kind": _KIND, "time": time.time(), "round": session.round, **session.records(),
                  "lengths": session.book.lengths, "cut": session.cut}
        commit = Commit(claim, formation, session.round, self._writes)
        writers = _writers(session)
        if writers is None:
            return _Task(commit, record, state.collect, None)
        record["sharded"] = writers.size
        plan = Plan(writers, self.place, commit.name, shards.collect(state))
        return _Task(commit, record, lambda: plan.tensors, plan)

    def _put(self, task: _Task, session: Session) -> str:
        """Write a commit; return why it is not the newest one, or "". Any thread may call it."""
        plan = task.plan
        if plan is not None and plan.rank != 0:
            plan.write(task.values())
            return ""
        why = "it could not be written"
        try:
            why = self._complete(task, task.commit.name)
        finally:
            if plan is not None:
                plan.tell(why)
        if why:
            return why
        self._round, self._problem = task.commit.round, ""
        session.saved(task.commit.round, self.path)
        with contextlib.suppress(Exception):  # else the next checkpoint removes them
            self.place.remove(commits.outdated(self._begun(), task.commit))
        return ""

    def _complete(self, task: _Task, name: str) -> str:
        """Write a commit, of sharded state with the other ranks; return why it is none, or ""."""
        try:
            if task.plan is None:
                self.place.write("%s/%s" % (name, STATE), lambda file: torch.save(task.values(), file))
            else:
                task.plan.write(task.values())
                task.plan.complete()
            newer = self._newer(task.commit)
            if not newer:
                record = json.dumps(task.record).encode() + b"\n"
                self.place.write("%s/%s" % (name, RECORD), lambda file: file.write(record))
        except Exception:
            self._drop(name)
            newer = self._newer(task.commit)
            if newer:
                return newer  # its process may have removed files of this one
            raise
        if newer:
            self._drop(name)
        return newer

    def _drop(self, name: str) -> None:
        with contextlib.suppress(Exception):  # else the next checkpoint removes them
            self.place.remove(["%s/%s" % (name, file) for file in [RECORD, *self.place.list(name)]])

    def _newer(self, commit: Commit) -> str:
        """Return why a commit cannot be the newest one, or "".

        Raise Error if another job has claimed the checkpoint since this one did.
        """
        names = self.place.list()
        owner = commits.owner(names)
        if self._claim and owner is not None and commits.claim_of(owner) > self._claim:
            with self.place.read(owner) as file:
                by = json.load(file)["owner"]
            raise Error(
                "checkpoint %s was taken over by job %s (UID %s): give each job a checkpoint of its own"
                % (self.path, by["name"], by["job"])
            )
        newest = commits.newest(commits.of(names, self.place.list))
        if newest is None or newest <= commit:
            return ""
        return "formation %d has written a checkpoint since" % newest.formation

    def attempt(self, session: Session, state: Any) -> None:
        """Copy the state and begin to write it.

        A checkpoint that is due while the last one is being written is made later. If the storage
        fails, as when a disk is full, the training continues, and the agent gets a report. The
        checkpoint is tried again after a round that ends ``RETRY`` seconds later, or when the next
        is due. Other errors are raised, those of the last checkpoint, too.
        """
        with CHECKPOINT:
            if _any_rank(session, self.busy()):
                self._late = True  # it is made when no rank is busy
                return
            self.settle()
            self._late, self._again = False, None
            if self._staging is None:
                self._staging = Staging()
            task = self._task(session, state)
            copied = self._staging.copy(task.values())
            if copied is None:
                self._run(task, session)
                self.settle()
                return
            task = task._replace(values=copied.values)
            self._thread = threading.Thread(target=self._run, args=(task, session), name="elasticdl-checkpoint")
            self._thread.start()

    def complete(self, session: Session, state: Any) -> None:
        """Make a checkpoint, and return when it is written. Failures are those of attempt."""
        with CHECKPOINT:
            self.settle()
            self._late, self._again = False, None
            task = self._task(session, state)
            self._run(task, session)
            if task.plan is not None:
                task.plan.await_end()
            self.settle()

    def _run(self, task: _Task, session: Session) -> None:
        try:
            self._put(task, session)
        except Cancelled:
            self._again = time.monotonic()  # the world of those that write it has ended
        except Exception as e:
            failure = _of_storage(e)
            if failure is None:
                self._failure = e
            else:
                self._again = time.monotonic() + RETRY
                self._report(str(failure))
                session.saved(task.commit.round, self.path, why=str(failure))

    def _report(self, why: str) -> None:
        """Report to the user why the storage fails, once."""
        if why != self._problem:
            sys.stderr.write("elasticdl: the checkpoint %s cannot be written: %s\n" % (self.path, why))
        self._problem = why

    def busy(self) -> bool:
        """Return whether a checkpoint is being written, or memory for the first one allocated."""
        if self._staging is not None and not self._staging.ready():
            return True
        return self._thread is not None and self._thread.is_alive()

    def settle(self, timeout: Optional[float] = None) -> None:
        """Wait until nothing is being written. Raise the error of the script, if there is one."""
        thread = self._thread  # the link's thread may call this, too
        if thread is not None:
            thread.join(timeout)
            if thread.is_alive():
                return
            self._thread = None
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def prepare(self, session: Session, state: Any) -> None:
        """Have the memory for a copy in the process that is rank 0, and in no other."""
        if not _writes(session):
            if self._staging is not None and not self.busy():
                self._staging = None
        elif self._staging is None and self.every:
            self._staging = Staging()
            if not session.parted:  # the first copy of shards allocates its memory
                self._staging.prepare(state.collect())

    def due(self, session: Session) -> bool:
        """Return whether this rank must make a checkpoint after this round."""
        if not _writes(session) or not self.every:
            return False
        return session.round % self.every == 0 or (session.again if session.parted else self.owes(session))

    def owes(self, session: Session) -> bool:
        """Return whether this rank is to write again, or later, what was due.

        Of sharded state all that write do it if one of them is to: the round has the ranks that are.
        """
        if not _writes(session) or not self.every:
            return False
        return self._late and not self.busy() or self._again is not None and time.monotonic() >= self._again

    def lacks(self, session: Session) -> bool:
        """Return whether the last round of the training has no checkpoint."""
        return _any_rank(session, self.every > 0 and session.world.rank == 0 and self._round != session.round)


def _writers(session: Session) -> Any:
    """Return the ranks that write the state together; None: rank 0 does, or others than this one."""
    if session.replica is not None:
        return session.replica.writers(session.group)
    return session.group if session.sharded else None


def _writes(session: Session) -> bool:
    """Return whether this rank writes a part of the state."""
    return session.world.rank == 0 or _writers(session) is not None


def _any_rank(session: Session, mine: bool) -> bool:
    """Return whether it is true of a rank that writes the state with this one."""
    if session.replica is not None:
        return session.replica.any_writer(session, mine)
    return any(row[0] for row in _gather(session.group, [int(mine)])) if session.sharded else mine


def load(file: Any) -> Any:
    """Return what a file of torch has, in the host's memory."""
    return torch.load(file, map_location="cpu", weights_only=False)


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


def _of_storage(e: Optional[BaseException]) -> Optional[OSError]:
    """Return the failure of the storage that caused an exception, None if there is none.

    torch raises other exceptions after such a failure.
    """
    while e is not None and not isinstance(e, OSError):
        e = e.__cause__ or e.__context__
    return e if e is not None and e.errno not in _WRONG_PATH else None


declared: Optional[Checkpoints] = None
state: Any = None  # State of the current training function
# The world in which a checkpoint was requested in an open round, to be written at its end; or None.
_asked: Optional[int] = None


def checkpoint(path: Optional[str] = None, every: int = 1000, same_data: bool = False) -> None:
    """Declare where checkpoints are, before :func:`init`; without a path, make one now.

    ``path`` is a directory, which is made when it is needed, or ``s3://BUCKET/PREFIX`` or
    ``gs://BUCKET/PREFIX``. ``every`` is in rounds, and the last round counts, too; 0 writes only on
    request. If there is a checkpoint, ``init`` resumes it, and its records are not trained on again.
    It is unpickled: use only what you trust.

    The state is copied in memory, and written while the training continues. One that is due before
    the last one is written is made when that is written. Without a path only rank 0 makes one, and
    it is written when the call returns. If the State is sharded, all ranks call it; of replicas,
    the processes of rank 0's worker write. In the middle of a round, from the batch to
    :func:`step`, the model may have records that are not credited yet: then that ``step()`` writes
    the checkpoint. If the storage fails, as when a disk is full, the training continues: the status
    shows the reason, and the checkpoint is tried again; one of sharded state when the next is due.

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
        declared = Checkpoints(os.fspath(path), every, same_data)
        return
    if declared is None or state is None:
        raise Error(
            "checkpoint() writes the State of a function under @elasticdl.run; declare checkpoint(path) before init()"
        )
    now = current()
    if not _writes(now):
        return
    if now.headers or now.half:
        _asked = now.world.formation
    else:
        declared.complete(now, state)


def _wanted(session: Session) -> bool:
    """Return whether this rank writes a checkpoint that was requested.

    The request may be of an earlier world, in which this rank was rank 0. Of replicas it counts in
    its world only: in others, not all that write may have it.
    """
    if session.replica is not None and _asked != session.world.formation:
        return False
    return _asked is not None and _writes(session)


def after_round() -> None:
    """Make a checkpoint if one is due, or was requested in the round."""
    global _asked
    session = current()
    if declared is None or state is None:
        return
    if not declared.busy():
        declared.settle()
    asked, _asked = _wanted(session), None
    if asked:
        declared.complete(session, state)
    elif declared.due(session):
        declared.attempt(session, state)
    else:
        declared.prepare(session, state)


@atexit.register
def _unwritten() -> None:
    """Print a warning if a checkpoint that the script requested was not written."""
    if _asked is not None:
        sys.stderr.write(
            "elasticdl: no checkpoint was written by the last checkpoint(): step() has not ended the round in which it was called\n"
        )


def before_end() -> str:
    """Write a checkpoint before this process is ended, for any ``every``; return why not, or "".

    Raise the failure of the storage, or the other error of the attempt.
    """
    if declared is None or state is None:
        return "no function under @elasticdl.run has begun"
    session = current()
    failure: Optional[Exception] = None
    try:
        declared.settle()
    except Exception as e:
        failure = e
    if _any_rank(session, failure is not None):
        raise failure or Error("the last checkpoint of another rank has failed")
    if not _any_rank(session, session.world.rank == 0 and declared._round != session.round):
        return ""  # it was being written
    try:
        return declared.write(session, state)
    except Exception as e:
        raise _of_storage(e) or e


def before_restart() -> None:
    """Wait for a checkpoint that is being written, if it does not take long."""
    if declared is not None:
        declared.settle(PATIENCE)


def after_training() -> None:
    """Write a checkpoint of the end of the training, unless its last round has one.

    A process that is lost afterwards then does not cost the training. Raise Error if a checkpoint
    was requested in a round that ``step()`` has not ended.
    """
    global _asked
    session = current()
    if _asked is not None and (session.headers or session.half):
        raise Error(
            "checkpoint() was called in a round that step() has not ended: call step() before the training function returns"
        )
    if declared is None or state is None:
        return
    asked, _asked = _wanted(session), None
    with CHECKPOINT:
        declared.settle()
    if asked or declared.lacks(session):
        declared.complete(session, state)
