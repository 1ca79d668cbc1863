"""Tests of world changes with a simulated NCCL, on top of gloo."""

import re

import pytest
from test_worlds import ended, recovery, words


@pytest.fixture(autouse=True)
def modern(request):
    if int(request.config.torch.split(".")[0]) < 2:
        pytest.skip("torch %s has one backend in a group" % request.config.torch)


def aborts(agent, p):
    """Return the names of the threads in which a process has aborted its NCCL group."""
    return re.findall("^aborts in (.*)$", agent.log(p), re.M)


def hellos(agent):
    return {(m["backend"], m["survives"]) for p in agent.processes for m in p.heard if m["op"] == "hello"}


@pytest.mark.parametrize("manual", [(), ("--manual",)])
def test_re_formed_in_the_process(job, manual):
    agent = job(4, "--size", 2000, "--pause", 0.005, *manual, script="simulated_nccl.py", ELASTICDL_NCCL="abort")
    assert agent.stepping(), words(agent)
    recovery(agent, lambda: agent.kill(agent.alive()[0]))
    recovery(agent, lambda: agent.freeze(agent.alive()[1]))
    recovery(agent, agent.start)
    results = ended(agent)
    assert [r["formation"] for r in results] == [4, 4, 4] and hellos(agent) == {("nccl", True)}
    survivors = [p for p in agent.processes if p.code() == 0]
    # Two worlds have lost a member. The third ended between two rounds: there was nothing to abort.
    assert [aborts(agent, p) for p in survivors] == [["elasticdl-abort"] * 2] * 2 + [[]], words(agent)
    assert agent.worlds[-1]["round"] >= 2


@pytest.mark.parametrize("change", ["kill", "join"])
@pytest.mark.parametrize("env", [{}, {"ELASTICDL_NCCL": "abort", "NCCL_IS": "2.25.1"}], ids=["default", "old NCCL"])
def test_started_again(job, tmp_path, env, change):
    """Check that processes end with 83 when the world changes, and resume from the checkpoint.

    That is the default, and happens with an NCCL that cannot abort.
    """
    path = tmp_path / "saved"
    agent = job(3, "--size", 12000, "--pause", 0.003, "--checkpoint", path, script="simulated_nccl.py", **env)
    assert agent.until(lambda: list(path.glob("commit-*/commit.json"))) and agent.stepping(6), words(agent)
    first = list(agent.processes)
    if change == "kill":
        agent.kill(first.pop(1))
    else:
        agent.start()
    assert agent.until(lambda: all(p.code() == 83 for p in first)), (words(agent), [p.code() for p in first])
    assert not any(aborts(agent, p) for p in first) and hellos(agent) == {("nccl", False)}
    for p in first:
        assert "nccl groups are not re-formed in the process" in agent.log(p)
        assert ("ELASTICDL_NCCL=abort needs NCCL 2.26 or newer, and this is 2.25.1" in agent.log(p)) == bool(env)
    if change == "kill":
        agent.start()
    assert len(ended(agent)) == 1 and agent.worlds[1]["round"] >= 5, agent.worlds


def test_an_abort_that_fails_is_a_doubt(job):
    agent = job(
        3, "--size", 20000, "--pause", 0.002, script="simulated_nccl.py", ELASTICDL_NCCL="abort", ABORT_FAILS="1"
    )
    assert agent.stepping(2), words(agent)
    agent.kill(agent.alive()[0])
    assert agent.until(lambda: sum(p.code() == 81 for p in agent.processes) == 2), words(agent)
    for p in agent.processes[1:]:
        assert any(
            m["op"] == "doubt" and m["why"] == "aborting NCCL's group failed: the communicator is in use"
            for m in p.heard
        )
