"""The state of one process in its job: world, round, ledger, and the agent's latest messages."""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from typing import Any, Callable, Dict, List, NoReturn, Optional, Tuple

import torch
import torch.distributed as dist

from . import nccl, spent
from .doubt import AGENT_GONE, DOUBT, NO_CHECKPOINT, RESTART, Error, WorldChanged, leave
from .group import MAKE, MESSAGES, Group, World, stay_outside
from .leases import AgentSource, Book, Cut, DataSet, LocalSource, misfit, remedied
from .link import Cancelled, Link, Message
from .replicas import Replica
from .rounds import AGAIN, ENDED, LEAVE, RANGES, SAVE, STEPS, STOP, Credit, Header, Ledger, count, enter, reported
from .store import AgentStore, meet
from .updates import Updates

#: The time between two heartbeats, in seconds.
BEAT = 1.0


class Session:
    """The membership of one process in its job. Methods are for the main thread.

    ``_hear`` and ``_lost`` run in the link's thread, ``_beat`` in its own.
    """

    def __init__(self, backend: str, address: Optional[str], sharded: Any = False) -> None:
        if backend not in ("gloo", "nccl"):
            raise Error("backend %r is not known; use \"gloo\" or \"nccl\"" % backend)
        self.backend = backend
        self.sharded = sharded is True  # each rank has a part of the state
        self.replica = Replica(self.recalled) if sharded == "worker" else None  # None: no replicas
        self.parted = bool(sharded)  # no rank has the whole state, so several write it
        self.survives = not self.sharded  # groups are re-formed in the process; False: it is restarted
        if backend == "nccl":
            nccl.check()
            self.survives = self.survives and address is not None and nccl.survives()
            nccl.prepare(self.survives)
        self.pid = os.getpid()
        self.world = World()
        self.group: Any = None
        self.round = 0  # number of updates in the state
        self.ledger: Ledger = {}  # records in the state
        self.cut: Optional[Cut] = None  # of the data set to which the ledger belongs; None: unknown
        self.same_data = False  # a ledger of an unknown data set is taken as one of the script's
        self.origin = "the state of the other ranks"  # of the ledger, for messages
        self.live = False         # there is state in memory
        self.loaded: Optional[Callable[[], Dict[str, Any]]] = None  # reads the state of a checkpoint
        self.look: Callable[["Session"], None] = lambda _: None  # takes those of the newest one
        self.commit_name = ""  # of the sharded state, of which read_shards reads this rank's part
        self.read_shards: Callable[[Any, str], None] = lambda state, name: None
        self.synced = False       # the state is that of this world
        self.half = False  # gradients of a round that is not committed may have been applied
        self.updates = Updates()
        self.weighed = False  # the loss of the open round is weighted by this rank's records
        self.source = -1
        self.complete = 0  # epochs that are whole in the state with which this world begins
        self.headers: List[Header] = []
        self.pending: List[Credit] = []
        self.reducers: "weakref.WeakSet[Any]" = weakref.WeakSet()
        self.on_commit: List[Callable[[], None]] = []
        self.on_end: Callable[[], str] = lambda: NO_CHECKPOINT  # saves the state; returns why not, or ""
        self.on_restart: Callable[[], None] = lambda: None  # waits for what is being written
        self.owes: Callable[[], bool] = lambda: False  # a part of a checkpoint is to be written again
        self.again = False  # a rank asks for that, in the last round
        self.over = False         # all records are in the model
        self.batch = 1  # the most records that a rank brought to a round without a lease of this one
        self.thread = 0  # identifier of the one that runs the training function; 0: none yet
        self._cv = threading.Condition()
        self._pushed: Optional[Message] = None
        self._recalled = self._asked = -1
        self._deadline: Optional[float] = None  # end of this process
        self._stop: Optional[float] = None      # end of the job
        self._unsaved: Optional[float] = None  # rank 0 saves the state then; None: no need
        self._written = -1  # newest round with a checkpoint of this process
        self._closing = False
        self._account = False  # the agent has asked which records are in the state of every rank
        # newest world of which the agent knows that all ranks have its state, and its round then
        self._met = (0, 0)
        self.link: Optional[Link] = Link(address, self._hear, self._lost) if address else None
        self.book = Book(AgentSource(self.link) if self.link else LocalSource())
        os.register_at_fork(after_in_child=self._forked)
        if self.link:
            self.link.start()
            self.link.send(
                "hello",
                v=1,
                pid=self.pid,
                local_rank=int(os.environ.get("LOCAL_RANK", "-1")),
                survives=self.survives,
                torch=str(torch.__version__),
                backend=backend,
            )
            threading.Thread(target=self._beat, name="elasticdl-beat", daemon=True).start()

    # Messages of the agent.

    def _hear(self, m: Message) -> None:
        op = m.get("op")
        with self._cv:
            if op in ("world", "outside"):
                self._pushed = m
            elif op == "recall" and m.get("now"):
                self._recalled = max(self._recalled, int(m["formation"]))
            elif op == "recall":
                self._asked = max(self._asked, int(m["formation"]))
            elif op == "leave":
                self._deadline = float(m["deadline"])
                self._unsaved = (time.time() + max(time.time(), self._deadline)) / 2  # half-way
            elif op == "stop":
                if self._stop is None:
                    self._unsaved = (time.time() + max(time.time(), float(m["deadline"]))) / 2
                self._stop = float(m["deadline"])
            elif op == "account":
                self._account = True
            self._cv.notify_all()
        if op == "end":
            leave(int(m.get("code", 0)), str(m.get("why", "the agent asked it to end, and gave no reason")))
        if op == "recall" and m.get("now"):
            assert self.link is not None
            self.link.cancel(int(m["formation"]))  # a checkpoint that is being written waits no longer
            if not self.survives:
                self._restart()
            group = self.group
            if group is not None and group.formation <= int(m["formation"]):
                group.condemn(self.doubt)

    def _lost(self) -> None:
        if not self._closing and os.getpid() == self.pid:
            leave(AGENT_GONE, "the agent closed the connection")

    def _beat(self) -> None:
        while True:
            time.sleep(BEAT)
            assert self.link is not None
            self.link.send("beat", round=self.round, spent=spent.report())

    def _forked(self) -> None:
        """Detach a forked child: it is no process of the job."""
        global _session
        if _session is self:
            if self.link:
                self.link.disown()
            _session = None

    def recalled(self) -> bool:
        """Return whether a member of this world is lost."""
        return self._recalled >= self.world.formation > 0

    def leaving(self) -> Optional[float]:
        return self._deadline

    # Worlds.

    def form(self, early: bool = False) -> None:
        """Leave the current world, if there is one, and wait until the next one is formed.

        The state is not yet that of the new world: see State.sync. ``early``: the script has yet to
        make its model. If others train, they do not wait for that: this process joins them later.
        """
        if not self.parted and self.updates.applied() and all(h.gathered for h in self.headers):
            self._complete()  # it ends here, and not by step()
        while True:
            self._reset()
            if self.link is None:
                self._alone()
                return
            self.link.send(
                "arrive",
                formation=self.world.formation,
                round=self._arrival(),
                read=not self.live,
                early=early,
                **self.records(),
            )
            m = self._next()
            if m["op"] == "outside":
                self.world = World(int(m["rank"]), int(m["size"]), int(m["local_rank"]))
                stay_outside(self.world)
                return
            if self._enter(m):
                return

    def join(self) -> None:
        """Join the others, if this process has not."""
        if self.group is None:
            self.look(self)  # the others may have written another since
            self.begins(2)
            self.form()

    def begins(self, stage: int) -> None:
        """Wait for the other processes of this worker, if they have a replica together."""
        if self.replica is not None:
            self.replica.meet(stage)

    def _arrival(self) -> int:
        """Return the round to arrive with: one less in the middle of a round, -1 without state."""
        if not self.live and self.loaded is None:
            return -1
        return self.round - (1 if self.half and self.round else 0)

    def records(self) -> Dict[str, Any]:
        """Return the fields of messages and checkpoints about the records in the state."""
        rows = [[e, n, done] for (e, n), done in sorted(self.ledger.items())]
        return {"ledger": rows, "settled": self.settled, "counted": self.book.counted}

    def _reset(self) -> None:
        self.headers, self.synced, self.over, self.weighed = [], False, False, False
        self.pending.clear()
        self.updates.close()
        for r in list(self.reducers):
            r.reset()
        if self.group is not None:
            if self.recalled():
                self.group.condemn(self.doubt)
            self.group.leave(self)
            self.group = None

    def _alone(self) -> None:
        self.world = World(formation=1, survivor=self.live)
        self._construct(Group(1, 0, 1, self.replica), dist.HashStore())
        self.source = -1

    def _next(self) -> Message:
        """Wait for a world that is newer than this one, and return its message."""
        def comes() -> bool:
            m = self._pushed
            return m is not None and (m["op"] == "outside" or int(m["formation"]) > self.world.formation)

        while True:
            with self._cv:
                while not comes():
                    # If no world follows, the agent ends this process in this wait. So rank 0 saves
                    # the state that all ranks had when they left their world.
                    whole = self.live and not self.half and not self.parted
                    due = self._unsaved if whole and self.world.rank == 0 else None
                    left = None if due is None else due - time.time()
                    if left is not None and left <= 0:
                        break
                    self._cv.wait(left)
                else:
                    m, self._pushed = self._pushed, None
                    assert m is not None
                    return m
            self._save()

    def _enter(self, m: Message) -> bool:
        """Construct the group of a world; return False if the world ends before that."""
        assert self.link is not None
        formation = int(m["formation"])
        self.world = World(int(m["rank"]), int(m["size"]), int(m.get("local_rank", 0)), formation, self.live)
        self.source = int(m.get("source", -1))
        # State.sync drops these epochs from the ledger: until then the state may be older.
        self.complete = int(m.get("settled", 0))
        self.book.void(int(m.get("floor", 0)))
        for name, value in m.get("env", {}).items():
            os.environ[name] = str(value)
        if self.recalled():
            return False
        store = AgentStore(self.link, formation)
        try:
            meet(store, self.world.rank, self.world.size, MAKE.total_seconds())
        except Error as e:
            self._explain("no group can be made in formation %d: %s" % (formation, e))
            return False
        return self._construct(Group(formation, self.world.rank, self.world.size, self.replica), store)

    def _construct(self, group: Group, store: Any) -> bool:
        done: List[Optional[Exception]] = []

        def tell(e: Optional[Exception]) -> None:
            with self._cv:
                done.append(e)
                self._cv.notify_all()

        self.group = group
        group.make(store, self.backend, tell)
        with self._cv:
            self._cv.wait_for(lambda: bool(done) or self.recalled(), MAKE.total_seconds() + 10)
        if done and done[0] is None and not self.recalled():
            group.publish()
            return True
        why = str(done[0] if done else "timed out")
        if self.link is None:
            raise Error("the %s group of this process cannot be made: %s" % (self.backend, why))
        if not self.recalled():
            self._explain("the group of formation %d cannot be made: %s" % (group.formation, why))
        return False

    def _explain(self, why: str) -> None:
        """Wait until the world changes, or end the process if the agent knows of no lost member."""
        assert self.link is not None
        if not self.recalled():
            try:
                self.link.ask("explain", self.world.formation)
            except Cancelled:
                pass
            else:
                self.doubt("%s (and the agent knows of no lost member)" % why)
        with self._cv:
            self._cv.wait_for(self.recalled)

    def doubt(self, why: str) -> NoReturn:
        if self.link is not None:
            self.link.send("doubt", why=why)
        leave(DOUBT, why)

    def lost(self, e: BaseException) -> NoReturn:
        """Raise WorldChanged for a failure of one of the package's own collectives."""
        words = "%s: %s" % (type(e).__name__, e)
        if self.link is None:
            raise Error("a collective failed in a world of one: " + words)
        self._explain("a collective failed: " + words)
        raise WorldChanged("formation %d is over" % self.world.formation) from None

    def explains(self, e: BaseException) -> bool:
        """Return whether the end of the world caused this exception of the script."""
        if self.link is None:
            return False
        text = "%s %s" % (type(e).__name__, e)
        if not self.recalled():
            if not isinstance(e, RuntimeError) or not any(w in text for w in MESSAGES):
                # torch raises only RuntimeError; an OSError is of the script's connections
                return False
            self._explain("the script's collective failed: " + text)
        return True

    # Rounds.

    def begin(
        self, weight: int = 0, credits: Tuple[Credit, ...] = (), ended: bool = False, steps: bool = False
    ) -> Header:
        """Open a round, or another part of it, with this rank's records; all ranks do it."""
        self.check_ready()
        self.updates.reopen()
        self.pending.extend(credits)
        flags = (
            (STOP if self._stop is not None else 0)
            | (LEAVE if self._asked >= self.world.formation else 0)
            | (ENDED if ended else 0)
            | (STEPS if steps else 0)
            | (SAVE if self.parted and self._unsaved is not None and time.time() >= self._unsaved else 0)
            | (AGAIN if self.parted and self.owes() else 0)
        )
        now = self.pending[:RANGES]
        # The next header has the rest, in this round or in the next one.
        del self.pending[:RANGES]
        try:
            header = Header(self.group, flags, weight, now)
        except RuntimeError as e:
            self.lost(e)
        self.headers.append(header)
        # Mates agree before their next collective, whether or not they have records.
        return header if self.replica is None else self.gathered(header)

    def agree(self) -> None:
        """Continue if the other processes of this worker do; else raise WorldChanged. See replicas.py."""
        try:
            self.group.agree()
        except RuntimeError as e:
            self.lost(e)

    def gathered(self, header: Header) -> Header:
        """Wait for a header and return it. Raise WorldChanged if a rank is lost."""
        try:
            header.rows()
        except RuntimeError as e:
            self.lost(e)
        return header

    @property
    def held(self) -> int:
        """The number of records that are reported and in no header yet."""
        return sum(count(c.last) - count(c.first) for c in self.pending)

    def weights(self, records: Optional[int] = None) -> Tuple[int, int]:
        """Return the number of records of this rank and of all ranks in the round.

        Open the round if it is not open. ``records`` is the number of this rank's, if the script
        takes none from leases; None: 1.
        """
        if not self.headers:
            own = self.held if self.book.used else 1 if records is None else records
            self.begin(own, ended=self.book.ended, steps=True)
        total = sum(self.gathered(h).total() for h in self.headers)
        return sum(h.weight for h in self.headers), total

    def weight(self, records: Optional[int] = None) -> int:
        """Return the number of records of this rank, without waiting if the round is open."""
        if not self.headers:
            return self.weights(records)[0]
        return sum(h.weight for h in self.headers)

    def drop(self) -> None:
        """Drop a round in which no rank had records, but perhaps the ends of shards."""
        self._tell(self.book.news() or self._met[1] < self.round)
        self._enter_credits()
        self.book.note(self.ledger)

    def _enter_credits(self) -> Tuple[List[Header], List[Credit]]:
        """End the open round: enter its credits in the ledger. Return its headers and credits."""
        headers, self.headers = self.headers, []
        credits = [c for h in headers for c in h.credits()]
        if wrong := enter(self.ledger, credits, self.settled):
            self.doubt(wrong)
        return headers, credits

    def _tell(self, news: bool = False) -> None:
        """Report to the agent what follows from a round that all ranks have begun.

        All ranks have the state of the world's begin: ``met``, once, or if there is other news.
        Every rank has the records in this rank's ledger: ``account``, if the agent has asked.
        """
        if self.link is not None and (news or self._met[0] != self.world.formation):
            self._met = (self.world.formation, self.round)
            self.link.send("met", formation=self.world.formation)
        if self._account and self.link is not None:
            self._account = False
            self.link.send("account", formation=self.world.formation, **self.records())

    def commit(self, loss: Any = None) -> None:
        """End a round: its records are in the model. Raise WorldChanged if the world ends, too."""
        self.weights()
        headers = self._complete(loss)
        for done in self.on_commit:
            done()
        if any(h.any(STOP) for h in headers):
            self.rest()
        last = any(h.any(LEAVE) for h in headers)
        if self.parted:
            self.save_parts(headers)
        elif self.world.rank == 0 and self._unsaved is not None and (last or time.time() >= self._unsaved):
            self._save()  # this process leaves, and the others may leave, too
        self.check(last)

    def _complete(self, loss: Any = None) -> List[Header]:
        """Credit the records of the open round, of which all headers are gathered; return these."""
        self._tell()
        headers, credits = self._enter_credits()
        own, total = sum(h.weight for h in headers), sum(h.total() for h in headers)
        self.round += 1
        self.half = self.weighed = False
        self.live, self.again = True, any(h.any(AGAIN) for h in headers)
        self.updates.close()
        self.over = self.over or total == 0 and all(h.all(ENDED) for h in headers)
        leases = self.book.credit(self.ledger)
        if self.link is not None:
            self.link.send(
                "round",
                formation=self.world.formation,
                round=self.round,
                credits=[list(c) for c in credits],
                leases=leases,
                loss=None if own == 0 else reported(loss),
                records=own,
                total=total,
            )
        return headers

    def rest(self) -> NoReturn:
        """End the training between two rounds, on all ranks after the same one, as the job stops.

        Rank 0 saves the state, and all wait until the agent ends them. Raise WorldChanged if a
        member is lost: the others form another world, and end in it.
        """
        if self.world.rank == 0 or self.parted:
            self._save(True)
        with self._cv:
            self._cv.wait_for(self.recalled)
        raise WorldChanged("formation %d is over" % self.world.formation)

    def save_parts(self, headers: List[Header]) -> None:
        """Save the state that several ranks write, if a rank asks for it, or if these leave."""
        if not self.parted:
            return
        if any(h.any(SAVE) for h in headers):
            self._save()
        elif any(h.any(LEAVE) for h in headers):
            if self.replica is None or self.replica.any_writer(self, self._unsaved is not None):
                self._save()

    def _save(self, stops: bool = False) -> None:
        """Save the state between two rounds, before this process is ended.

        It is then the state of all ranks. ``stops``: the process is ended because the job stops.
        """
        try:
            why = "" if self._written == self.round and not self.parted else self.on_end()
        except Cancelled:
            self.lost(RuntimeError("the world changed"))  # the next one saves it
        except Exception as e:
            # The disk may be full. The agent gets the reason, and the process still ends.
            why = "%s: %s" % (type(e).__name__, e)
            sys.stderr.write("elasticdl: the checkpoint before the end of this process failed: %s\n" % why)
        with self._cv:
            self._unsaved = None
            stops = stops or self._stop is not None
        if stops and self.link is not None and self.world.rank == 0:
            self.link.send("rest", round=self.round, why=why)

    def saved(self, round: int, path: str, **failed: str) -> None:
        """Report that a checkpoint of that round is written, or ``why`` not. For any thread."""
        if not failed:
            self._written = round
        if self.link is not None:
            self.link.send("unsaved" if failed else "saved", round=round, path=path, **failed)

    def check(self, asked: bool) -> None:
        """Raise WorldChanged if a member is lost, or if all are to leave after this round."""
        if self.recalled() or asked and self.link is not None:
            if asked and not self.survives:
                self._restart()
            raise WorldChanged("formation %d is over" % self.world.formation)

    def _restart(self) -> None:
        """End this process, so that it is started again in the next world."""
        try:
            self.on_restart()
        finally:
            what = "shards" if self.sharded else "%s groups" % self.backend
            leave(RESTART, "the world changed, and %s are not re-formed in the process" % what)

    def declare(self, data: DataSet) -> None:
        """Declare the data set. Raise Error if the records in the state are of another."""
        self.book.check(data)
        self._fit(data)
        self.book.declare(data)

    def fit(self) -> None:
        """Raise Error if a received ledger does not fit the data set that is declared, if any."""
        if self.book.used:
            self._fit(self.book.data)

    def _fit(self, data: DataSet) -> None:
        cut = data.cut() if self.cut is None and self.same_data else self.cut
        wrong = misfit(cut, data, self.ledger, self.settled)
        if wrong:
            raise Error("%s cannot be resumed: %s" % (self.origin, remedied(wrong, cut)))
        self.cut = data.cut()

    def check_ready(self) -> None:
        if self.group is None:
            raise Error("there is no world: call elasticdl.init() first, and train in a function under @elasticdl.run")

    @property
    def known(self) -> Tuple[Any, ...]:
        """All that describes the records in the state."""
        return self.settled, self.book.counted, self.ledger, self.book.lengths, self.cut

    @known.setter
    def known(self, known: Tuple[Any, ...]) -> None:
        self.settled, self.book.counted, self.ledger, self.book.lengths, self.cut = known

    @property
    def settled(self) -> int:
        """The number of epochs that are in the state whole, and not in the ledger."""
        return self.book.settled

    @settled.setter
    def settled(self, epochs: int) -> None:
        self.book.settled = epochs

    def settle(self, epochs: int) -> None:
        """Drop the tasks of the first ``epochs`` epochs, all records of which are in the state."""
        if epochs > self.settled:
            stream = bool((self.cut or {}).get("stream"))
            self.settled, self.ledger = epochs, self.book.rest(self.ledger, epochs, stream)

    def finish(self) -> None:
        """Report to the agent that this process needs no further world."""
        if self.link is not None and not self._closing:
            self._closing = True
            self.link.send("account", formation=self.world.formation, **self.records())  # it is final
            self.link.send("done", round=self.round)


_session: Optional[Session] = None


def start(backend: str, sharded: Any = False) -> Session:
    global _session
    if _session is not None:
        raise Error("elasticdl.init() was called before in this process")
    _session = Session(backend, os.environ.get("ELASTICDL_SOCKET") or None, sharded)
    return _session


def current() -> Session:
    """Return the session of this process. Raise Error if there is none."""
    if _session is None:
        raise Error("call elasticdl.init() first")
    return _session
