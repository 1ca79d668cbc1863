"""Tests that a planned stop of the job, or of one worker, saves the last complete round."""

import os
import signal
import time

import pytest

from test_worlds import ended, words


def rests(p):
    return [m for m in p.heard if m["op"] == "rest"]


def rounds(p):
    return [m["round"] for m in p.heard if m["op"] == "round"]


def stop(processes):
    for p in processes:
        p.send(op="stop", deadline=time.time() + 60)


def resumed(agent, round):
    """End and restart the processes; check that they continue after ``round``, each record once."""
    ranks = len(agent.members)
    for p in agent.alive():
        os.kill(p.pid, signal.SIGTERM)
    assert agent.until(lambda: all(p.gone for p in agent.processes))
    before = len(agent.worlds)
    for _ in range(ranks):
        agent.start()
    assert agent.until(lambda: len(agent.worlds) > before), words(agent)
    assert agent.worlds[before]["round"] == round
    ended(agent)


@pytest.mark.parametrize("ranks, asked", [(1, 1), (2, 2), (3, 3), (3, 1)])
def test_a_stop_saves_the_last_round(job, tmp_path, ranks, asked):
    path = str(tmp_path / "saved")
    agent = job(ranks, "--size", 2000, "--pause", 0.003, "--checkpoint", path, "--every", 1000)
    assert agent.stepping(7), words(agent)
    assert not os.path.exists(path)
    # one that hears it is enough: the flag travels with the round
    stop(agent.members[ranks - asked:])
    first = agent.members[0]
    assert agent.until(lambda: bool(rests(first))), words(agent)
    last = rests(first)[0]["round"]
    assert rests(first)[0]["why"] == "" and last >= 7
    assert [m["path"] for m in first.heard if m["op"] == "saved"] == [path]
    assert agent.until(lambda: all(rounds(p)[-1] == last for p in agent.members)), [
        rounds(p)[-1] for p in agent.members
    ]
    assert not any(rests(p) for p in agent.members[1:])
    resumed(agent, last)


def test_a_stop_without_a_checkpoint_says_why(job):
    agent = job(2, "--size", 2000, "--pause", 0.003)
    assert agent.stepping(3), words(agent)
    stop(agent.members)
    assert agent.until(lambda: bool(rests(agent.members[0]))), words(agent)
    assert "declares no checkpoint" in rests(agent.members[0])[0]["why"]


def test_a_stop_whose_checkpoint_cannot_be_written_says_why(job, tmp_path):
    agent = job(2, "--size", 2000, "--pause", 0.003, "--checkpoint", tmp_path / "later" / "saved", "--every", 1000)
    assert agent.stepping(3), words(agent)
    (tmp_path / "later").write_text("not a directory")
    stop(agent.members)
    assert agent.until(lambda: bool(rests(agent.members[0]))), words(agent)
    assert "later" in rests(agent.members[0])[0]["why"]


def test_one_is_killed_in_a_stop(job, tmp_path):
    """Check that the others form a world, are asked to stop again, and end a round in it."""
    path = str(tmp_path / "saved")
    agent = job(3, "--size", 4000, "--pause", 0.003, "--checkpoint", path, "--every", 1000)
    assert agent.stepping(5), words(agent)
    agent.kill(agent.members[0])
    assert agent.until(lambda: agent.formation == 2), words(agent)
    stop(agent.members)
    assert agent.until(lambda: bool(rests(agent.members[0]))), words(agent)
    assert rests(agent.members[0])[0]["why"] == "" and os.path.exists(path)


def test_one_that_rests_is_called_back_when_another_is_killed(job, tmp_path):
    path = str(tmp_path / "saved")
    agent = job(3, "--size", 4000, "--pause", 0.003, "--checkpoint", path, "--every", 1000)
    assert agent.stepping(5), words(agent)
    stop(agent.members)
    assert agent.until(lambda: bool(rests(agent.members[0]))), words(agent)
    before = rests(agent.members[0])[0]["round"]
    agent.kill(agent.members[0])
    assert agent.until(lambda: agent.formation == 2), words(agent)
    assert agent.until(lambda: bool(rests(agent.members[0]))), words(agent)  # it was asked, and does not forget it
    assert rests(agent.members[0])[0]["round"] > before


@pytest.mark.parametrize("leaves", [0, 1])
def test_rank_0_saves_before_it_leaves(job, tmp_path, leaves):
    path = str(tmp_path / "saved")
    agent = job(2, "--size", 4000, "--pause", 0.003, "--checkpoint", path, "--every", 100000)
    assert agent.stepping(5), words(agent)
    leaver = agent.members[leaves]
    agent.leave(leaver)
    assert agent.until(lambda: leaver.code() == -signal.SIGTERM), words(agent)
    saved = [m["round"] for m in leaver.heard if m["op"] == "saved"]
    assert len(saved) == (1 if leaves == 0 else 0)
    assert not saved or saved[0] == rounds(leaver)[-1]
    ended(agent)


def test_all_leave_and_rank_0_saves_the_last_round(job, tmp_path):
    path = str(tmp_path / "saved")
    agent = job(2, "--size", 2000, "--pause", 0.003, "--checkpoint", path, "--every", 1000)
    assert agent.stepping(5), words(agent)
    for p in agent.members:
        agent.warn(p, time.time() + 4)
    first = agent.members[0]
    assert agent.until(lambda: any(m["op"] == "saved" for m in first.heard)), words(agent)
    resumed(agent, next(m["round"] for m in first.heard if m["op"] == "saved"))
