"""Kills, stops and starts processes of a job, and counts in the model itself what was trained on."""

import json
import random
import time


def ended(agent, timeout=40):
    """Waits until all that live have ended, and checks that every record is in the model once."""
    ok = agent.until(lambda: all(p.gone for p in agent.processes), timeout)
    logs = "\n".join("%d: %s" % (p.number, agent.log(p)[-1500:]) for p in agent.processes)
    assert ok, "not ended: %s\n%s" % ([p.number for p in agent.processes if not p.gone], logs)
    assert agent.wrong == []
    results = []
    for p in agent.processes:
        if p.popen.poll() == 0:
            results.append(json.loads([line for line in agent.log(p).splitlines() if line.startswith("{")][-1]))
    assert results, logs
    for r in results:
        assert r["wrong"] == [], (r, agent.worlds, logs)
    return results


def recovery(agent, kill):
    """Kills and returns how long it takes until all survivors step again."""
    formation, begin = agent.formation, time.time()
    kill()
    assert agent.until(lambda: agent.formation > formation, 20), [agent.log(p)[-800:] for p in agent.processes]
    assert agent.stepping(1, 20), ([agent.log(p)[-800:] for p in agent.processes], agent.worlds)
    return time.time() - begin


def test_a_job_counts_every_record_once(job):
    agent = job(3, "--epochs", 2)
    results = ended(agent)
    assert [p.popen.poll() for p in agent.processes] == [0, 0, 0]
    assert len({r["updates"] for r in results}) == 1


def test_killed_frozen_and_joined_with_workers_that_hold_sockets(job):
    agent = job(4, "--size", 60000, "--hold", "--workers", 1, "--pause", 0.005)
    assert agent.stepping()
    times = [recovery(agent, lambda: agent.kill(agent.alive()[0])), recovery(agent, lambda: agent.freeze(agent.alive()[1]))]
    print("re-formed in", times)
