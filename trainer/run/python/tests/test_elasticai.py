"""Tests of scripts in ElasticDL's style, with loader workers, kills and a fixed global batch."""

import json

import pytest


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


@pytest.mark.parametrize("fixed", [0, 4])
def test_kills_in_mid_task_with_loader_workers_and_replacements(job, fixed):
    # Tasks of 19 records, batches of 8: a batch ends within a task, or is of two tasks.
    agent = job(2, 1200, fixed, 0, script="elasticai_tasks.py")
    for formation in (1, 3):
        # one that has a task of which a number of records is in the model that is no multiple of
        # the batch
        def kill():
            trained = (
                agent.formation >= formation
                and len(agent.alive()) == 2
                and all(agent.has_state(p) for p in agent.alive())
            )
            for p in agent.alive() if trained else []:
                if any(
                    agent.credited.get(agent.leases[n], 0) % 8 and agent.credited[agent.leases[n]] < 11
                    for n in p.leases
                ):
                    agent.kill(p)
                    agent.only = agent.start()
                    return True
            return False

        assert agent.until(kill), [agent.log(p)[-1500:] for p in agent.processes]
    got = results(agent)
    assert all(w["round"] > 0 for w in agent.worlds[1:])  # the training did not start over
    assert sorted(p.code() for p in agent.processes) == [-9, -9, 0, 0], [
        agent.log(p)[-1500:] for p in agent.processes
    ]  # and no 81
    assert all(g["counts"] == [1.0] for g in got), got
    assert set(agent.credited.values()) == {19, 3}
    credited_once(agent, 1200, 1)


def test_a_loader_that_is_left_early_and_made_anew(job):
    agent = job(2, 480, 0, 15, script="elasticai_tasks.py")
    got = results(agent)
    assert len(got) == 2 and all(g["counts"] == [1.0] for g in got), got
    credited_once(agent, 480, 1)


def test_a_fixed_global_batch_is_a_mean(job):
    agent = job(2, 240, 1, 0, 4, script="elasticai.py")
    got = results(agent)
    assert len(got) == 2 and got[0] == got[1]
    # Each update is the mean over its records, so it adds 1 to the sum of the weights: 30
    # minibatches, 4 an update.
    updates = max(m["round"] for p in agent.processes for m in p.heard if m["op"] == "round")
    assert abs(got[0]["sum"] - updates) < 1e-9 and 7 <= updates <= 9
    credited_once(agent, 240, 1)


@pytest.mark.parametrize("form", ["service", "client", "shards", "built"])
def test_each_form_has_every_record_once(job, form):
    # 245: the last shard of an epoch has 5 records, the last minibatch of shards, too. Record
    # indices are filled up to whole minibatches.
    size = 245 if form in ("shards", "built") else 240
    if form == "client":
        size = 8 * 16
    agent = job(2, form, size, 2, 0.0, script="elasticai_forms.py")
    got = results(agent)
    assert len(got) == 2
    for g in got:
        assert g["counts"] == [2.0], g
        assert g["minibatches"] == got[0]["minibatches"] and g["epoch"] == got[0]["epoch"]
    credited_once(agent, size, 2)
    if form == "built":
        assert sum(g["shards"] for g in got) == 2 * 11


@pytest.mark.parametrize("form", ["shards", "built"])
def test_shards_and_a_kill_and_a_newcomer(job, form):
    agent = job(3, form, 605, 2, 0.005, script="elasticai_forms.py")
    assert agent.stepping(3), [agent.log(p)[-1500:] for p in agent.processes]
    agent.kill(agent.alive()[1])
    assert agent.until(lambda: agent.formation == 2) and agent.stepping(2), [
        agent.log(p)[-1500:] for p in agent.processes
    ]
    # a newcomer that has had no shard does not do with gradients what the function does
    if form == "built":
        agent.start()
        assert agent.until(lambda: agent.formation == 3), [agent.log(p)[-1500:] for p in agent.processes]
    got = results(agent)
    assert len(got) == (3 if form == "built" else 2)
    for g in got:
        assert (
            g["counts"] == [2.0] and g["minibatches"] == got[0]["minibatches"] and g["epoch"] == got[0]["epoch"] < 3
        ), got
    credited_once(agent, 605, 2)


def test_a_worker_without_a_shard_takes_part(job):
    agent = job(2, "built", 24, 1, 0.0, script="elasticai_forms.py")  # one shard
    got = results(agent)
    assert [g["counts"] for g in got] == [[1.0], [1.0]] and sorted(g["shards"] for g in got) == [0, 1]
    credited_once(agent, 24, 1)
