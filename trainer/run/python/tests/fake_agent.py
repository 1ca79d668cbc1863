"""A fake agent and master of one job.

It forms worlds, keeps the store, grants leases, recalls and kills processes, and checks credits.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

#: How long a test waits for what must come, in seconds: a busy machine may take that long.
LIMIT = 180
#: How long after its end a process may still have messages that are not read, in seconds.
UNREAD = 5
HERE = os.path.dirname(os.path.abspath(__file__))


class Forker:
    """A Python process that has imported torch. The processes of all tests are forked from it."""

    def __init__(self, python: str) -> None:
        env = dict(os.environ, OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1", PYTHONUNBUFFERED="1")
        self._python = subprocess.Popen(
            [python, os.path.join(HERE, "forker.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
        )
        self._live: Dict[int, Forked] = {}
        self._started: "queue.Queue[Forked]" = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._python.stdout:  # type: ignore[union-attr]
            m = json.loads(line)
            if "pid" in m:
                self._live[m["pid"]] = Forked(m["pid"])
                self._started.put(self._live[m["pid"]])
            else:
                self._live.pop(m["exit"]).end(m["code"])

    def start(self, argv: List[str], env: Dict[str, str], log: str) -> "Forked":
        message = json.dumps(dict(argv=argv, env=env, log=log)).encode() + b"\n"
        self._python.stdin.write(message)  # type: ignore[union-attr]
        self._python.stdin.flush()  # type: ignore[union-attr]
        return self._started.get(timeout=LIMIT)

    def close(self) -> None:
        self._python.kill()
        self._python.wait()


class Forked:
    """A process of the forker. The system may give its pid to another process when it has ended."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.code: Optional[int] = None  # None if it runs; a signal is negative
        self.ended = 0.0

    def end(self, code: int) -> None:
        self.ended = time.time()
        self.code = code

    def wait(self) -> Optional[int]:
        """Wait until the process has ended, and return its exit code; None if it runs too long."""
        end = time.time() + LIMIT
        while self.code is None and time.time() < end:
            time.sleep(0.01)
        return self.code


class Process:
    """A process of the job, as its agent sees it."""

    def __init__(self, number: int, forked: Forked) -> None:
        self.number, self.pid, self._forked = number, forked.pid, forked
        self.worker, self.local = number, number
        self.lines: Any = None  # to write to
        self.arrival: Optional[Dict[str, Any]] = None
        self.gone = self.done = self.killed = False
        self.formation = 0
        self.leases: List[int] = []
        self.waits: List[Tuple[int, List[str]]] = []
        self.heard: List[Dict[str, Any]] = []
        self.leaves = self.left = False  # was asked to leave, and is released
        self.read = False  # all that it has sent

    def code(self) -> Optional[int]:
        """Return the exit code of the process, None if it runs; a signal is negative.

        It is known when all is read that the process has sent. A child may keep the socket open.
        """
        code = self._forked.code
        if code is None or code < 0 or self.read or time.time() > self._forked.ended + UNREAD:
            return code
        return None

    def send(self, **m: Any) -> None:
        try:
            self.lines.sendall(json.dumps(m).encode() + b"\n")
        except (OSError, AttributeError):
            pass


class Agent:
    """The other end of the processes' sockets.

    The first world waits for ``first`` processes. One that is ``old`` knows no shards of unknown
    length. With ``each`` it stands for the agents of workers of that number of processes.
    """

    old = False

    def __init__(
        self, directory: str, forker: Forker, command: List[str], first: int, env: Optional[Dict[str, str]] = None
    ) -> None:
        self.forker, self.command, self.first, self.dir = forker, command, first, directory
        self.env = env or {}
        self.lock = threading.RLock()
        self.processes: List[Process] = []
        self.formation = 0
        self.members: List[Process] = []
        self.store: Dict[str, str] = {}
        self.data: Optional[Dict[str, Any]] = None
        self.leases: Dict[int, Tuple[int, int]] = {}
        self.credited: Dict[Tuple[int, int], int] = {}
        self.settled = 0
        self.rounds: Dict[Tuple[int, int], Any] = {}
        self.worlds: List[Dict[str, Any]] = []
        self.wrong: List[str] = []
        self.away = False  # the master: no leases
        self.claims: List[str] = []  # checkpoints that processes have claimed
        self.owner = ""  # why they may not
        self.only: Optional[Process] = None  # gets the next lease
        self.silent = False  # no recalls
        self.least = 1  # a world has at least as many
        # whether it says that it knows of no lost process
        self.explain = True
        self.round = -1
        self.last = 0  # epoch of which a task was granted
        # how many there are, if not as many as are declared
        self.epochs: Optional[int] = None
        self.each = 0
        self.path = os.path.join(directory, "agent")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(64)
        self.open = True
        threading.Thread(target=self._accept, daemon=True).start()
        threading.Thread(target=self._reap, daemon=True).start()

    # Processes.

    def start(self, worker: int = 0, local: int = 0) -> Process:
        with self.lock:
            number = len(self.processes)
            place = {}
            if self.each:
                own = os.path.join(self.dir, "worker%d" % worker)
                if not os.path.isdir(own):
                    os.mkdir(own)
                    os.symlink(self.path, os.path.join(own, "agent"))
                place = dict(ELASTICDL_SOCKET=os.path.join(own, "agent"), GROUP_RANK=str(worker))
                place.update(LOCAL_RANK=str(local), LOCAL_WORLD_SIZE=str(self.each))
            env = dict(
                os.environ,
                ELASTICDL_SOCKET=self.path,
                PYTHONPATH=os.path.dirname(HERE),
                OMP_NUM_THREADS="1",
                GLOO_SOCKET_IFNAME="lo",
                PYTHONDONTWRITEBYTECODE="1",
                NUMBER=str(number),
                LOCAL_RANK=str(number),
            )
            env.update(place, **self.env)
            forked = self.forker.start(self.command, env, os.path.join(self.dir, "%d.log" % number))
            self.processes.append(Process(number, forked))
            if self.each:
                self.processes[-1].worker, self.processes[-1].local = worker, local
            return self.processes[-1]

    def log(self, p: Process) -> str:
        try:
            with open(os.path.join(self.dir, "%d.log" % p.number)) as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def kill(self, p: Process) -> None:
        """Kill the process, but not its children, which have copies of its sockets."""
        p.killed = True
        os.kill(p.pid, signal.SIGKILL)

    def freeze(self, p: Process) -> None:
        """Stop the process, and count it as lost, as an agent does after the heartbeat timeout."""
        os.kill(p.pid, signal.SIGSTOP)
        self._gone(p)

    def hang_up(self) -> None:
        """End all connections, as when the agent dies."""
        for p in self.processes:
            p.lines.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.open = False
        for p in self.processes:
            try:
                os.killpg(p.pid, signal.SIGKILL)  # with what it forked
            except OSError:
                pass
        self.listener.close()

    def _reap(self) -> None:
        while self.open:
            for p in list(self.processes):
                if not p.gone and p.code() is not None:
                    self._gone(p)
            time.sleep(0.004)

    def _gone(self, p: Process) -> None:
        with self.lock:
            if p.gone:
                return
            p.gone = True
            for lease in p.leases:
                self.leases.pop(lease, None)
            p.leases = []
            if p in self.members and not p.done and not p.left:
                self._recall(True)
            self._form()

    # Worlds.

    def leave(self, p: Process) -> None:
        """Ask a process to leave, and recall all processes after a round."""
        with self.lock:
            p.leaves = True
            self.warn(p, time.time() + 30)
            self._recall(False)

    def warn(self, p: Process, deadline: float) -> None:
        """Notify a process of its end at ``deadline``; the others still need it."""
        p.send(op="leave", deadline=deadline)

    def _recall(self, now: bool) -> None:
        if self.silent:
            return
        for m in self.members:
            if not m.gone and not m.done:
                m.send(op="recall", formation=self.formation, now=now)
                if now:
                    for q, _ in m.waits:
                        m.send(q=q, err="the world changed", cancelled=True)
                    m.waits = []

    def _whole_worker(self, p: Process) -> bool:
        """Return whether all processes of the worker have arrived."""
        mates = [x for x in self.processes if x.worker == p.worker and x.arrival is not None and not x.gone]
        return not self.each or len(mates) == self.each

    def _form(self) -> None:
        alive = [p for p in self.processes if not p.gone and not p.done and not p.left]
        arrived = [p for p in alive if p.arrival is not None and self._whole_worker(p)]
        if not arrived or any(p.arrival is None for p in alive if p in self.members):
            return
        if self.formation == 0 and len(arrived) < self.first or len(arrived) < self.least:
            return
        newest = max(arrived, key=lambda p: (p.arrival["round"], not p.leaves))
        source = newest.arrival["round"]
        for p in [p for p in arrived if p.leaves and not newest.leaves]:
            arrived.remove(p)
            p.left = True
            os.kill(p.pid, signal.SIGTERM)
        self.credited = {(e, n): d for e, n, d in newest.arrival["ledger"]} if source >= 0 else {}
        self.settled = newest.arrival["settled"] if source >= 0 else 0
        self.round = source
        self.formation += 1
        if self.each:
            arrived.sort(key=lambda p: (p.worker, p.local))
        self.members = arrived
        self.store = {}
        self.worlds.append(
            dict(
                formation=self.formation,
                members=[p.number for p in arrived],
                time=time.time(),
                round=source,
                rounds=[p.arrival["round"] for p in arrived],
            )
        )
        for rank, p in enumerate(arrived):
            p.arrival = None
            p.formation = self.formation
            p.send(
                op="world",
                formation=self.formation,
                rank=rank,
                size=len(arrived),
                local_rank=p.local,
                source=arrived.index(newest) if source >= 0 else -1,
                env={"WORLD_SIZE": len(arrived), "RANK": rank, "GROUP_RANK": p.worker},
            )

    # Connections.

    def _accept(self) -> None:
        while self.open:
            try:
                c, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(c,), daemon=True).start()

    def _serve(self, c: socket.socket) -> None:
        p: Optional[Process] = None
        try:
            for line in c.makefile("rb"):
                # JSON has no NaN and no infinity, but Python's has
                m = json.loads(line, parse_constant=lambda word: self.wrong.append("%s in %r" % (word, line)))
                with self.lock:
                    if m["op"] == "hello":
                        p = next(x for x in reversed(self.processes) if x.pid == m["pid"])
                        p.lines = c
                    assert p is not None
                    if m["op"] not in ("beat", "get", "set", "wait", "add", "check"):
                        p.heard.append(dict(m, time=time.time()))
                    if not p.gone:
                        self._take(p, m)
        except (OSError, ValueError):
            pass
        finally:
            if p is not None:
                p.read = True

    def _take(self, p: Process, m: Dict[str, Any]) -> None:
        op = m["op"]
        if op == "arrive":
            if m["early"] and p not in self.members and any(not x.gone for x in self.members):
                rank = len(self.members)
                size = rank + max(1, self.each)
                p.send(op="outside", rank=rank + (p.local if self.each else 0), size=size, local_rank=p.local)
                return
            p.arrival = m
            if p not in self.members and self.formation and self._whole_worker(p):
                self._recall(False)
            self._form()
        elif op == "done":
            p.done = True
            self._form()
        elif op == "round":
            self._credit(p, m)
        elif op == "had":
            for lease, done in m["leases"]:
                if lease in self.leases:
                    task = self.leases[lease]
                    self.credited[task] = max(done, self.credited.get(task, 0))
            self._settle(p, m)
        elif op == "explain":
            if self.silent and self.explain:
                p.send(q=m["q"], ok=None)
        elif "f" in m:
            self._keep(p, m)
        elif op == "checkpoint":
            self.claims.append(m["path"])
            p.send(q=m["q"], **({"err": self.owner} if self.owner else {"ok": {"claim": 1}}))
        elif op == "dataset":
            names = ("size", "epochs", "shuffle", "seed", "records_per_task", "stream", "digest")
            fields = {k: m.get(k) for k in names}
            if self.data is not None and self.data != fields:
                p.send(q=m["q"], err="another data set is declared: %s" % self.data)
                return
            self.data = fields
            p.send(q=m["q"], ok={"stream": True} if m.get("stream") and not self.old else {})
        elif op == "lease":
            p.send(q=m["q"], ok=self._grant(p))

    def _keep(self, p: Process, m: Dict[str, Any]) -> None:
        """Answer a request to the store of the current world."""
        if m["f"] != self.formation:
            p.send(q=m["q"], err="formation %d is over" % m["f"], cancelled=True)
            return
        op, k, store = m["op"], m.get("k"), self.store
        ok: Any = None
        if op == "set":
            store[k] = m["v"]
        elif op == "add":
            import base64

            total = int(base64.b64decode(store[k])) + m["n"] if k in store else m["n"]
            store[k] = base64.b64encode(str(total).encode()).decode()
            ok = total
        elif op == "compare_set":
            if store.get(k, m["e"]) == m["e"]:
                store[k] = m["v"]
            ok = store[k]
        elif op == "delete":
            ok = store.pop(k, None) is not None
        elif op == "check":
            ok = all(x in store for x in m["ks"])
        elif op == "num":
            ok = len(store)
        elif op in ("get", "wait"):
            p.waits.append((m["q"], [k] if op == "get" else m["ks"]))
            self._answer()
            return
        p.send(q=m["q"], ok=ok)
        self._answer()

    def _answer(self) -> None:
        """Answer the waits all of whose keys exist.

        A get is a wait for one key, and its answer is the value.
        """
        for p in self.members:
            rest = []
            for q, keys in p.waits:
                if all(k in self.store for k in keys):
                    p.send(q=q, ok=self.store[keys[0]] if len(keys) == 1 else True)
                else:
                    rest.append((q, keys))
            p.waits = rest

    # Leases.

    def _tasks(self) -> List[Tuple[int, int]]:
        assert self.data is not None
        count = -(-self.data["size"] // self.data["records_per_task"])
        return [(e, n) for e in range(self.epochs or self.data["epochs"]) for n in range(count)]

    def _whole(self, number: int, done: int) -> bool:
        """Return whether a count of the first records of a task is that of all."""
        assert self.data is not None
        start, end = self._size(number)
        return done >= (1 << 40 if self.data["stream"] else end - start)

    def _size(self, number: int) -> Tuple[int, int]:
        assert self.data is not None
        start = number * self.data["records_per_task"]
        return start, min(start + self.data["records_per_task"], self.data["size"])

    def _grant(self, p: Process) -> Dict[str, Any]:
        if self.away or self.only not in (None, p):
            return {"wait": True}
        self.only = None
        leased = set(self.leases.values())
        waiting = False
        for task in self._tasks():
            start, end = self._size(task[1])
            if task[0] < self.settled or self._whole(task[1], self.credited.get(task, 0)):
                continue
            waiting = True
            if task in leased:
                continue
            self.last = max(self.last, task[0])
            self.number = getattr(self, "number", 0) + 1
            self.leases[self.number] = task
            p.leases.append(self.number)
            return dict(
                lease=self.number, epoch=task[0], number=task[1], start=start, end=end, done=self.credited.get(task, 0)
            )
        return {"wait": True} if waiting else {"over": True}

    def _credit(self, p: Process, m: Dict[str, Any]) -> None:
        if not any(h["op"] == "met" and h["formation"] == m["formation"] for h in p.heard):
            self.wrong.append("a round of world %s, of which nobody said that all have its state" % m["formation"])
        if m["formation"] == self.formation:
            known = self.rounds.setdefault((m["formation"], m["round"]), m["credits"])
            if known != m["credits"]:
                self.wrong.append("round %s: one rank says %s, another %s" % (m["round"], known, m["credits"]))
            for e, n, first, last in m["credits"]:
                self.credited[e, n] = max(last, self.credited.get((e, n), 0))
            self.round = max(self.round, m["round"])
        self._settle(p, m)

    def _settle(self, p: Process, m: Dict[str, Any]) -> None:
        for lease, done in m["leases"]:
            if lease in self.leases:
                if self._whole(self.leases[lease][1], done):
                    del self.leases[lease]
                    p.leases.remove(lease)

    # Waiting.

    def until(self, what: Callable[[], bool], timeout: float = LIMIT) -> bool:
        end = time.time() + timeout
        while time.time() < end:
            with self.lock:
                if what():
                    return True
            time.sleep(0.004)
        return False

    def stepping(self, count: int = 1, timeout: float = LIMIT) -> bool:
        """Wait until all members are done, or have ended ``count`` rounds of the newest world."""
        return self.until(
            lambda: bool(self.members)
            and all(
                p.done
                or p.gone
                or sum(1 for m in p.heard if m["op"] == "round" and m["formation"] == self.formation) >= count
                for p in self.members
            )
            and any(not p.gone for p in self.members),
            timeout,
        )

    def alive(self) -> List[Process]:
        return [p for p in self.members if not p.gone and not p.done and not p.killed]

    def has_state(self, p: Process) -> bool:
        with self.lock:
            return any(m["op"] == "round" for m in p.heard)
