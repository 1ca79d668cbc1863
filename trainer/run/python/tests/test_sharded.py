"""Tests of models that are sharded over all ranks, whose processes restart with the world."""

import glob
import os
import signal

import pytest

from fake_agent import HERE
from test_stop import rests, rounds, stop
from test_worlds import ended, words


@pytest.fixture(autouse=True)
def _torch(request):
    if tuple(int(n) for n in request.config.torch.split(".")[:2]) < (2, 6):
        pytest.skip("torch has no fully_shard")


@pytest.fixture
def start(job, tmp_path):
    def make(ranks, size, every=5, pause=0.01):
        return job(ranks, "--size", size, "--checkpoint", tmp_path / "kept", "--every", every, "--pause", pause,
                   script="sharded.py")

    return make


def page(word):
    """Return the blocks of Python of the page that have this word behind the language's name."""
    with open(os.path.join(HERE, "..", "..", "..", "..", "docs", "sharded-models.md")) as f:
        return [block.split("```")[0] for block in f.read().split("```python%s\n" % word)[1:]]


def test_the_script_of_the_page(job, tmp_path):
    (tmp_path / "page.py").write_text(page("")[0])
    agent = job(2, script=str(tmp_path / "page.py"), CHECKPOINT=str(tmp_path / "kept"))
    assert agent.until(lambda: all(p.gone for p in agent.processes)), words(agent)
    assert [p.code() for p in agent.processes] == [0, 0], words(agent)
    assert committed(tmp_path) == [rounds(agent.processes[0])[-1]]
    (commit,) = glob.glob(str(tmp_path / "kept" / "commit-*"))
    (read,) = page(" fragment")
    read = read.replace("/data/checkpoint/commit-00000001-00000003-00000500-1", commit)
    assert commit in read
    (tmp_path / "read.py").write_text("import torch\n" + read + "assert values['model']['0.weight'].any()\n")
    alone = job(1, script=str(tmp_path / "read.py"))
    assert alone.until(lambda: alone.processes[0].gone) and alone.processes[0].code() == 0, words(alone)


def committed(tmp_path):
    return sorted(int(p.parent.name.split("-")[3]) for p in (tmp_path / "kept").glob("commit-*/commit.json"))


def again(agent, ranks):
    """Wait until all processes have ended for the next world, and start as many as given."""
    assert agent.until(lambda: all(p.gone for p in agent.processes)), words(agent)
    worlds, agent.least = len(agent.worlds), ranks
    for _ in range(ranks):
        agent.start()
    assert agent.until(lambda: len(agent.worlds) > worlds), words(agent)
    return agent.worlds[-1]["round"]


@pytest.mark.parametrize("ranks, then", [(3, 2), (2, 3)])
def test_one_is_killed_and_the_others_read_their_shards_in_another_world(start, tmp_path, ranks, then):
    agent = start(ranks, 800)
    assert agent.until(lambda: bool(committed(tmp_path))) and agent.stepping(8), words(agent)
    killed = agent.members[1]
    agent.kill(killed)
    round = again(agent, then)
    assert {p.code() for p in agent.processes[:ranks] if p is not killed} == {83}, words(agent)
    assert round >= 5 and round % 5 == 0, round
    results = ended(agent)
    assert len(results) == then, results


def test_a_newcomer_costs_no_round(start, tmp_path):
    agent = start(1, 800, every=1000, pause=0.02)
    assert agent.stepping(3), words(agent)
    agent.least = 2  # the process that restarts belongs to the next world
    newcomer = agent.start()
    assert agent.until(lambda: agent.processes[0].code() == 83), words(agent)
    last = rounds(agent.processes[0])[-1]
    assert committed(tmp_path) == [last] and last >= 3
    agent.start()
    assert agent.until(lambda: len(agent.worlds) > 1), words(agent)
    # the newcomer arrived before there was a checkpoint, and reads that of the other
    assert agent.worlds[-1]["round"] == last and newcomer in agent.members
    assert len(ended(agent)) == 2


def test_a_stop_writes_the_last_round_of_all_ranks(start, tmp_path, forker):
    agent = start(2, 1600, every=1000)
    assert agent.stepping(4), words(agent)
    stop([agent.members[1]])
    first = agent.members[0]
    assert agent.until(lambda: bool(rests(first))), words(agent)
    last = rests(first)[0]["round"]
    assert rests(first)[0]["why"] == "" and committed(tmp_path) == [last]
    assert not rests(agent.members[1])
    for p in agent.alive():
        os.kill(p.pid, signal.SIGTERM)
    # without the package, in one process
    (commit,) = glob.glob(str(tmp_path / "kept" / "commit-*"))
    script = tmp_path / "read.py"
    script.write_text(
        "import sys, torch, torch.distributed.checkpoint as dcp\n"
        "values = {'model': {'count': torch.empty(1600), 'other.weight': torch.empty(30, 30)}}\n"
        "dcp.load(values, checkpoint_id=sys.argv[1])\n"
        "print(int(values['model']['count'].sum()), values['model']['count'].max().item())\n"
    )
    env = dict(os.environ, PYTHONPATH=HERE)
    forker.start([str(script), commit], env, str(tmp_path / "read.log")).wait()
    text = (tmp_path / "read.log").read_text()
    assert text.split()[-2:] == [str(last * 16), "1.0"], text
    assert again(agent, 3) == last
    ended(agent)
