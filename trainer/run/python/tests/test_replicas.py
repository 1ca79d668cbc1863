"""Tests of replicas of a sharded model: one for each worker, sharded over its processes."""

import json
import os
import signal
import time

import pytest

from test_sharded import committed, page
from test_stop import rests, stop
from test_worlds import words

EACH = 2  # processes of a worker


@pytest.fixture(autouse=True)
def _torch(request):
    if tuple(int(n) for n in request.config.torch.split(".")[:2]) < (2, 6):
        pytest.skip("torch has no fully_shard")


@pytest.fixture
def start(job):
    def make(workers, size, pause=0.01, **options):
        flags = [word for name, value in options.items() for word in ("--" + name, value)]
        agent = job(0, "--size", size, "--pause", pause, *flags, script="replicas.py")
        agent.each, agent.first = EACH, workers * EACH
        for worker in range(workers):
            begin(agent, worker)
        return agent

    return make


def begin(agent, worker):
    return [agent.start(worker, local) for local in range(agent.each)]


def results(agent, size):
    """Return what the processes print at the end, by worker and local rank."""
    assert agent.until(lambda: all(p.gone for p in agent.processes)), words(agent)
    assert not agent.wrong, agent.wrong
    found = {}
    for p in agent.processes:
        lines = [line for line in agent.log(p).splitlines() if '"ended"' in line]
        if lines:
            found[p.worker, p.local] = json.loads(lines[0])
    for r in found.values():
        assert r["wrong"] == [], words(agent)
    for worker in {w for w, _ in found}:
        assert sum(found[worker, local]["records"] for local in range(agent.each)) == size, words(agent)
    for local in range(agent.each):
        assert len({r["digest"] for (_, l), r in found.items() if l == local}) == 1, words(agent)
    return found


def test_undisturbed_workers_have_the_same_replicas(start):
    agent = start(2, 600)
    assert sorted(results(agent, 600)) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_the_script_of_the_page(start, tmp_path, job):
    (tmp_path / "page.py").write_text(page("")[1])
    agent = job(0, script=str(tmp_path / "page.py"), CHECKPOINT=str(tmp_path / "kept"))
    agent.each, agent.first = EACH, 2 * EACH
    for worker in range(2):
        begin(agent, worker)
    assert agent.until(lambda: all(p.gone for p in agent.processes)), words(agent)
    assert [p.code() for p in agent.processes] == [0] * 4, words(agent)
    assert committed(tmp_path) == [agent.round]


def test_workers_of_one_process(start):
    agent = start(0, 600)
    agent.each, agent.first = 1, 2
    for worker in range(2):
        agent.start(worker, 0)
    assert len(results(agent, 600)) == 2


def test_a_model_that_is_replicated_is_the_model_of_one_process(start):
    """The same records in the same rounds make the same model, whatever ranks have which."""
    weights = []
    for workers, each in ((1, 1), (1, 2), (2, 1), (2, 2)):
        agent = start(0, 720, pause=0, batch=18)
        agent.each, agent.first = each, workers * each
        for worker in range(workers):
            begin(agent, worker)
        found = results(agent, 720)
        weights.append([v for local in range(each) for v in found[0, local]["weights"]])
        assert {r["updates"] for r in found.values()} == {40}, words(agent)
    for other in weights[1:]:
        assert sorted(weights[0]) == pytest.approx(sorted(other), abs=2e-5)


def pids(agent, worker):
    return {p.pid for p in agent.processes if p.worker == worker and not p.gone}


def lose(agent, worker, local, back=True):
    """Kill a process, and start its worker again when its other process has ended, too."""
    mine = [p for p in agent.members if p.worker == worker]
    agent.kill(next(p for p in mine if p.local == local))
    assert agent.until(lambda: all(p.gone for p in mine)), words(agent)
    assert {p.code() for p in mine if not p.killed} == {83}, words(agent)
    if back:
        begin(agent, worker)


@pytest.mark.parametrize("worker, local", [(1, 1), (1, 0), (0, 0), (0, 1)])
def test_a_lost_process_costs_the_replica_of_its_worker_only(start, worker, local):
    agent = start(2, 3000)
    assert agent.stepping(3), words(agent)
    others = pids(agent, 1 - worker)
    lose(agent, worker, local)
    assert agent.until(lambda: len(agent.members) == 4 and len(agent.worlds) > 2), words(agent)
    assert agent.worlds[1]["members"] == [p.number for p in agent.processes[:4] if p.worker != worker]
    assert agent.stepping(3), words(agent)
    found = results(agent, 3000)
    assert {r["pid"] for (w, _), r in found.items() if w != worker} == others and len(found) == 4
    # The rounds of the state with which each world began: no round was lost.
    assert [w["round"] for w in agent.worlds] == sorted(w["round"] for w in agent.worlds)
    assert agent.worlds[1]["round"] >= 3


def test_a_lost_worker_does_not_stop_the_others(start):
    agent = start(3, 1500)
    assert agent.stepping(3), words(agent)
    others = pids(agent, 0) | pids(agent, 2)
    for p in [p for p in agent.members if p.worker == 1]:
        agent.kill(p)
    found = results(agent, 1500)
    assert {r["pid"] for r in found.values()} == others and {r["size"] for r in found.values()} == {4}


def test_workers_join_and_leave_without_a_restart(start):
    agent = start(1, 4000)
    assert agent.stepping(3), words(agent)
    first = pids(agent, 0)
    begin(agent, 1)
    assert agent.until(lambda: len(agent.members) == 4) and agent.stepping(3), words(agent)
    round = agent.worlds[-1]["round"]
    assert agent.worlds[-1]["rounds"] == [round, round, -1, -1]
    with agent.lock:
        for p in agent.members[:2]:
            p.leaves = True
        agent.leave(agent.members[0])
    assert agent.until(lambda: len(agent.worlds) == 3) and agent.stepping(3), words(agent)
    assert agent.worlds[-1]["members"] == [2, 3]
    # The first worker was released, and the other one has continued with its state.
    assert {p.pid for p in agent.processes if p.left} == first
    assert agent.worlds[-1]["round"] >= round + 3
    assert len(results(agent, 4000)) == 2


def test_the_training_begins_again_when_no_replica_is_whole(start):
    agent = start(2, 1500)
    assert agent.stepping(3), words(agent)
    first = list(agent.members)
    for worker in (0, 1):
        agent.kill(next(p for p in first if p.worker == worker and p.local == worker))
    assert agent.until(lambda: all(p.gone for p in first)), words(agent)
    assert {p.code() for p in first if not p.killed} == {83}, words(agent)
    agent.least = 4
    for worker in (0, 1):
        begin(agent, worker)
    assert len(results(agent, 1500)) == 4
    assert agent.worlds[-1]["round"] == -1


def test_processes_are_killed_at_any_moment(start, tmp_path):
    """Kill a process of either worker in turn, at moments that differ."""
    busy = tmp_path / "busy"
    busy.touch()
    agent = start(2, 40000, pause=0.02, busy=busy)
    for i in range(10):
        whole(agent, 4)
        time.sleep(0.0033 * i)
        lose(agent, i % 2, i // 2 % 2)
    whole(agent, 4)
    busy.unlink()
    assert len(results(agent, 40000)) == 4
    assert all(w["round"] > 0 for w in agent.worlds[1:]), agent.worlds


def whole(agent, size):
    """Wait until a world of that size steps."""
    assert agent.until(lambda: len(agent.members) == size and not any(p.gone for p in agent.members)), words(agent)
    assert agent.stepping(2), words(agent)


# Agreement of the processes of a worker.


@pytest.mark.parametrize("fault, workers", [("reduction", 2), ("reduction", 3), ("end", 2)])
def test_what_ends_for_one_local_rank_only_costs_no_other_replica(start, fault, workers):
    agent = start(workers, 480 if fault == "end" else 2400, fault=fault)
    assert agent.until(lambda: any(p.gone for p in agent.processes)), words(agent)
    others = [p for p in agent.processes if p.worker != 0]
    found = results(agent, 480 if fault == "end" else 2400)
    assert all(p.code() == 0 for p in others), words(agent)
    assert len(found) == len(others)
    last = agent.worlds[1]["round"]
    assert last >= 480 // 32 if fault == "end" else last == 3, agent.worlds


def test_plain_values_are_the_same_in_all_processes(start):
    """One process of a worker has changed a value of the State, when the other lost the world."""
    agent = start(2, 2400, fault="plain")
    assert agent.until(lambda: any(p.gone for p in agent.processes)), words(agent)
    others = [p for p in agent.processes if p.worker != 0]
    found = results(agent, 2400)
    assert all(p.code() == 0 for p in others), words(agent)
    assert {r["epoch"] for r in found.values()} == {1}, words(agent)


def test_shards_that_may_have_different_updates_are_not_used(start):
    """A collective of the script fails for one local rank, and ends for the other one."""
    agent = start(2, 600, fault="between")
    assert agent.until(lambda: all(p.gone for p in agent.processes)), words(agent)
    assert sorted(p.code() for p in agent.processes) == [-9, 83, 83, 83], words(agent)
    assert any("a collective of all ranks has failed between" in agent.log(p) for p in agent.processes), words(agent)
    agent.least = 4
    for worker in (0, 1):
        begin(agent, worker)
    assert len(results(agent, 600)) == 4
    assert agent.worlds[-1]["round"] == -1


def test_a_state_that_one_local_rank_has_received_only_is_not_taken(start):
    """The worker with the newest state ends while the newcomer takes it."""
    agent = start(2, 2400, fault="state")
    assert agent.stepping(3), words(agent)
    newcomers = begin(agent, 2)
    assert agent.until(lambda: len(agent.worlds) == 3), words(agent)
    found = results(agent, 2400)
    assert [p.code() for p in newcomers] == [0, 0], words(agent)
    assert sorted(found) == [(1, 0), (1, 1), (2, 0), (2, 1)]


# Checkpoints.


def test_a_checkpoint_is_of_one_replica_and_any_number_of_workers_resumes_it(start, tmp_path):
    kept = tmp_path / "kept"
    agent = start(2, 2400, checkpoint=kept)
    assert agent.until(lambda: bool(committed(tmp_path))) and agent.stepping(8), words(agent)
    first = list(agent.members)
    for p in first:
        agent.kill(p)
    assert agent.until(lambda: all(p.gone for p in first)), words(agent)
    commit = sorted(kept.glob("commit-*"))[-1]
    assert len(list(commit.glob("*.distcp"))) == EACH
    agent.least = 6
    for worker in range(3):
        begin(agent, worker)
    assert len(results(agent, 2400)) == 6
    assert agent.worlds[1]["round"] >= 5 and agent.worlds[1]["round"] % 5 == 0


def test_a_world_that_ends_while_a_checkpoint_is_written_costs_that_only(start, tmp_path):
    agent = start(2, 4000, checkpoint=tmp_path / "kept", every=20, write=1)
    assert agent.stepping(21), words(agent)
    others = pids(agent, 0)
    assert committed(tmp_path) == []
    lose(agent, 1, 0)
    # It is written again in the next world, before the next is due.
    assert agent.until(lambda: bool(committed(tmp_path))) and 20 < committed(tmp_path)[0] < 40, words(agent)
    found = results(agent, 4000)
    assert {r["pid"] for (w, _), r in found.items() if w == 0} == others and len(found) == 4
    assert committed(tmp_path) == [agent.round], words(agent)
    assert not any("cannot be written" in agent.log(p) for p in agent.processes), words(agent)


def test_a_stop_writes_the_last_round(start, tmp_path):
    agent = start(2, 2400, checkpoint=tmp_path / "kept", every=1000)
    assert agent.stepping(4), words(agent)
    stop([agent.members[3]])
    first = agent.members[0]
    assert agent.until(lambda: bool(rests(first))), words(agent)
    last = rests(first)[0]["round"]
    assert rests(first)[0]["why"] == "" and committed(tmp_path) == [last]
    for p in agent.alive():
        os.kill(p.pid, signal.SIGTERM)
    assert agent.until(lambda: all(p.gone for p in agent.processes)), words(agent)
    agent.least = 2
    begin(agent, 0)
    assert len(results(agent, 2400)) == 2
    assert agent.worlds[1]["round"] == last


def test_a_worker_that_leaves_keeps_the_state_before(start, tmp_path):
    agent = start(2, 1600, checkpoint=tmp_path / "kept", every=1000)
    assert agent.stepping(4), words(agent)
    with agent.lock:
        for p in agent.members[:2]:
            p.leaves = True
            agent.warn(p, time.time() + 30)
        agent.leave(agent.members[0])
    assert agent.until(lambda: len(agent.worlds) == 2), words(agent)
    assert committed(tmp_path) == [agent.worlds[1]["round"]]
    assert len(results(agent, 1600)) == 2


# Errors.


LOOP = """
import torch
from torch.distributed.fsdp import fully_shard

import elasticdl

elasticdl.init(sharded="worker")
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
fully_shard(model[0], mesh=elasticdl.worker_mesh())
state = elasticdl.State(model=model)


@elasticdl.run
def train(state):
    elasticdl.weighted(model[0](torch.ones(1, 4)).sum()).backward()
    elasticdl.allreduce_gradients(%s)


train(state)
"""


@pytest.mark.parametrize(
    "what, message",
    [
        ("model", "a parameter with the shape (4,) is not sharded over worker_mesh()"),
        ("model[0]); elasticdl.allreduce_gradients(model[0]", "call allreduce_gradients() once in a round"),
    ],
)
def test_gradients_that_would_be_wrong_are_refused(tmp_path, job, what, message):
    (tmp_path / "script.py").write_text(LOOP % what)
    agent = job(0, script=str(tmp_path / "script.py"))
    agent.each, agent.first = EACH, EACH
    begin(agent, 0)
    assert agent.until(lambda: all(p.gone for p in agent.processes)), words(agent)
    assert any(message in agent.log(p) for p in agent.processes), words(agent)


@pytest.mark.parametrize(
    "script, message",
    [
        ('elasticdl.init("nccl", sharded="worker")', 'replicas train with "gloo", not with "nccl"'),
        ('elasticdl.init(sharded="node")', """init(sharded='node'): expected True, False or "worker\""""),
        ("elasticdl.init(); elasticdl.worker_mesh()", 'worker_mesh() needs elasticdl.init(sharded="worker")'),
        ('elasticdl.init(sharded="worker"); elasticdl.DistributedDataParallel(torch.nn.Linear(1, 1))',
         "call allreduce_gradients(model) after backward()"),
        ('elasticdl.init(sharded="worker"); elasticdl.allreduce_gradients(torch.nn.Linear(1, 1))',
         "call elasticdl.weighted(loss).backward()"),
    ],
)
def test_a_script_that_cannot_have_replicas_says_why(tmp_path, job, script, message):
    (tmp_path / "script.py").write_text("import torch\nimport elasticdl\n%s\n" % script.replace("; ", "\n"))
    agent = job(1, script=str(tmp_path / "script.py"))
    assert agent.until(lambda: agent.processes[0].gone), words(agent)
    assert agent.processes[0].code() == 1 and message in agent.log(agent.processes[0]), words(agent)
