"""Runs a script of ElasticDL's shape, with loader workers, kills and a fixed global batch."""

import json


def results(agent):
    assert agent.until(lambda: all(p.gone for p in agent.processes)), [agent.log(p)[-1500:] for p in agent.processes]
    assert agent.wrong == []
    logs = [agent.log(p) for p in agent.processes if p.code() == 0]
    assert logs, [agent.log(p)[-1500:] for p in agent.processes]
    return [json.loads(log.splitlines()[-1]) for log in logs]


def credited_once(agent, size, epochs):
    assert sum(agent.credited.values()) == size * epochs


def test_a_script_with_loader_workers_and_a_kill(job):
    agent = job(3, 600, 2, 2, 0, script="elasticai.py")
    assert agent.stepping(3), [agent.log(p)[-1500:] for p in agent.processes]
    agent.kill(agent.alive()[1])
    got = results(agent)
    assert len(got) == 2 and got[0] == got[1] and got[0]["least"] > 0
    credited_once(agent, 600, 2)


def test_a_fixed_global_batch_is_a_mean(job):
    agent = job(2, 240, 1, 0, 4, script="elasticai.py")
    got = results(agent)
    assert len(got) == 2 and got[0] == got[1]
    # Each update is the mean over its records, so it adds 1 to the sum of the weights: 30 minibatches, 4 an update.
    updates = max(m["round"] for p in agent.processes for m in p.heard if m["op"] == "round")
    assert abs(got[0]["sum"] - updates) < 1e-9 and 7 <= updates <= 9
    credited_once(agent, 240, 1)
