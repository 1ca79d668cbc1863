"""Tests of shards of unknown length, with kills, joins and restarts; the model counts the records."""

import collections
import json
import os
import random

import pytest

from fake_agent import Agent
from test_worlds import ended, recovery, words

LENGTHS = "50,0,33,64,7,48,20,90,0,11"
SHARDS = len(LENGTHS.split(","))


def opens(agent, *processes):
    """Return how often each shard was opened, and the positions from which it was read."""
    found = collections.defaultdict(list)
    for p in processes or agent.processes:
        for line in agent.log(p).splitlines():
            if line.startswith('{"opens"'):
                m = json.loads(line)
                found[m["opens"]].append(m.get("start", 0))
    return found


@pytest.mark.parametrize("ranks, workers", [(1, 2), (3, 0), (3, 2)])
def test_every_record_of_a_shard_once(job, ranks, workers):
    agent = job(ranks, "--lengths", LENGTHS, "--epochs", 2, "--workers", workers, "--seek", script="streaming.py")
    results = ended(agent)
    assert len(results) == ranks and agent.formation == 1 and max(r["largest"] for r in results) == 16
    seen = opens(agent)
    # fillers open shards from their beginning, before a rank has had a record
    assert len(seen) == SHARDS and all(set(starts) == {0} for starts in seen.values())
    assert sum(len(starts) for starts in seen.values()) <= 2 * SHARDS + 2 * ranks


def test_more_ranks_than_shards(job):
    assert len(ended(job(3, "--lengths", "0,0,70", "--epochs", 2, script="streaming.py"))) == 3


@pytest.mark.parametrize("workers", [0, 2])
def test_another_rank_continues_the_shard_of_a_lost_one(job, workers):
    held = max(1, workers)  # shards that a rank reads
    lengths = ",".join(["1000"] * 2 * held)
    agent = job(2, "--lengths", lengths, "--pause", 0.01, "--seek", "--workers", workers, script="streaming.py")
    assert agent.stepping(4), words(agent)
    recovery(agent, lambda: agent.kill(agent.alive()[0]))
    survivor = agent.alive()[0]
    ended(agent)
    starts = sorted(start for many in opens(agent, survivor).values() for start in many)
    # the shards of the lost one were continued, and the own ones were not opened again
    assert len(starts) == 2 * held and starts[held - 1] == 0 and starts[held] >= 16, starts


@pytest.mark.parametrize("workers", [0, 2])
def test_a_newcomer_does_not_make_the_others_read_again(job, workers):
    agent = job(2, "--lengths", ",".join(["300"] * 8), "--pause", 0.02, "--workers", workers, script="streaming.py")
    assert agent.stepping(2), words(agent)
    recovery(agent, agent.start)
    assert len(agent.worlds[-1]["members"]) == 3
    ended(agent)
    seen = opens(agent)
    assert sum(len(starts) for starts in seen.values()) <= 8 + 1, seen  # a filler of the newcomer


@pytest.mark.parametrize("workers", [0, 1])
def test_random_kills_and_every_record_of_a_shard_once(job, workers):
    rng = random.Random(int(os.environ.get("SEED", "1")))
    agent = job(3, "--lengths", LENGTHS, "--epochs", 500, "--pause", 0.001, "--workers", workers, script="streaming.py")
    kills = 0
    while kills < (20 if workers == 0 else 6):
        assert agent.stepping(rng.randrange(1, 4)), (kills, words(agent), agent.worlds)
        victim = rng.choice(agent.alive() or [None])
        if any(agent.has_state(p) for p in agent.alive() if p is not victim):
            agent.kill(victim)
            kills += 1
        while sum(p.code() is None for p in agent.processes) < 3:
            agent.start()
    assert agent.until(lambda: all(p in agent.members for p in agent.processes if not p.gone)), words(agent)
    agent.epochs = agent.last + 1
    results = ended(agent)
    assert {r["epochs"] for r in results} == {agent.epochs}
    assert all(w["round"] >= 0 for w in agent.worlds[1:]), (words(agent), agent.worlds)


def test_all_are_lost_and_the_shards_are_continued(job, tmp_path):
    arguments = ("--lengths", "400,300,0,10", "--pause", 0.01, "--seek", "--checkpoint", tmp_path / "saved.pt")
    agent = job(2, *arguments, script="streaming.py")
    assert agent.stepping(12), words(agent)
    lost = agent.alive()
    for p in lost:
        agent.kill(p)
    assert agent.until(lambda: all(p.gone for p in agent.processes))
    agent.start()
    agent.start()
    assert agent.until(lambda: len(agent.worlds) > 1) and agent.worlds[1]["round"] >= 3
    ended(agent)
    again = opens(agent, *agent.processes[2:])
    assert any(start > 0 for starts in again.values() for start in starts), again


def test_an_older_agent_is_refused(job, monkeypatch):
    monkeypatch.setattr(Agent, "old", True)
    agent = job(1, script="streaming.py")
    assert agent.until(lambda: agent.processes[0].code() == 1), words(agent)
    assert "the agent is of an older version" in agent.log(agent.processes[0])
