"""Tests that kill, stop and start processes of a job, whose model counts the records."""

import glob
import json
import os
import random
import re
import signal
import time

import pytest


def ended(agent):
    """Wait until all have ended; check that every record was trained once per epoch."""
    results = finished(agent)
    for r in results:
        assert r["wrong"] == [], (r, agent.worlds, words(agent))
    return results


def finished(agent):
    """Wait until all have ended; return the results of those that exited with 0."""
    ok = agent.until(lambda: all(p.gone for p in agent.processes))
    logs = "\n".join("%d: %s" % (p.number, agent.log(p)[-1500:]) for p in agent.processes)
    assert ok, "not ended: %s\n%s" % ([p.number for p in agent.processes if not p.gone], logs)
    assert agent.wrong == []
    results = [result(agent, p) for p in agent.processes if p.code() == 0]
    assert results, logs
    return results


def result(agent, p):
    return json.loads([line for line in agent.log(p).splitlines() if line.startswith("{")][-1])


def words(agent):
    return "\n".join("%d: %s" % (p.number, agent.log(p)[-800:]) for p in agent.processes)


def recovery(agent, change):
    """Change the world; return the seconds until all ranks of the new world have made a step."""
    formation, begin = agent.formation, time.time()
    change()
    assert agent.until(lambda: agent.formation > formation), words(agent)
    assert agent.stepping(1), (words(agent), agent.worlds)
    return time.time() - begin


def test_every_record_once_and_all_end_together(job):
    agent = job(3, "--epochs", 2)
    results = ended(agent)
    assert [p.code() for p in agent.processes] == [0, 0, 0]
    assert len({r["updates"] for r in results}) == 1


@pytest.mark.parametrize("loss", ["nan", "inf"])
def test_a_loss_that_is_not_finite(job, loss):
    ended(job(2, "--size", 200, "--loss", loss))


def test_one_may_take_long_before_init(job):
    agent = job(3, 8, script="late.py")
    assert {p.code() for p in agent.processes if finished(agent)} == {0}
    assert agent.formation == 1 and "waiting for rank 1 of 3 to call init()" in agent.log(agent.processes[0]), words(
        agent
    )


def test_one_is_lost_before_it_is_ready(job):
    agent = job(3, 1000, script="late.py")
    assert agent.until(lambda: "elasticdl/come/2" in agent.store), words(agent)
    agent.kill(agent.processes[1])
    assert len(finished(agent)) == 2 and agent.formation == 2


def test_one_has_ended_before_init(job):
    agent = job(3, 1000, script="late.py")
    agent.silent = True
    assert agent.until(lambda: "elasticdl/come/2" in agent.store), words(agent)
    with agent.lock:
        agent.store.update({"elasticdl/ended/1": "", "elasticdl/ended/any": "", "elasticdl/come/1": ""})
        agent._answer()
    assert agent.until(lambda: sum(p.code() == 81 for p in agent.processes) == 2), words(agent)
    assert any(m["op"] == "doubt" and "rank 1 ended before init()" in m["why"] for m in agent.processes[0].heard)


def test_the_end_waits_for_gloos_threads_to_drop_their_tensors(job):
    for _ in range(4):
        agent = job(3, script="last.py")
        assert agent.until(lambda: all(p.code() is not None for p in agent.processes)), words(agent)
        assert [p.code() for p in agent.processes] == [0, 0, 0], words(agent)


def test_killed_and_frozen_beside_children_that_hold_the_sockets(job):
    agent = job(5, "--size", 3000, "--hold", "--workers", 1, "--pause", 0.005, "--epochs", 2)
    assert agent.stepping()
    pids = [p.pid for p in agent.processes]
    times = [
        recovery(agent, lambda: agent.kill(agent.alive()[0])),
        recovery(agent, lambda: agent.freeze(agent.alive()[1])),
        recovery(agent, lambda: agent.kill(agent.alive()[-1])),
    ]
    print("re-formed in", ["%.3f" % t for t in times])
    for p in agent.processes:
        if p.gone and p.code() is None:
            os.kill(p.pid, 9)
    results = ended(agent)
    assert [r["formation"] for r in results] == [4, 4]
    assert [p.pid for p in agent.processes] == pids  # the survivors are the same processes


def test_lost_in_a_group_of_the_scripts(job):
    """A kill, a frozen process and a newcomer; the ranks of the survivors change."""
    agent = job(4, 2000, script="subgroups.py")
    assert agent.stepping(2), words(agent)
    recovery(agent, lambda: agent.freeze(agent.alive()[0]))
    recovery(agent, lambda: agent.kill(agent.alive()[0]))
    recovery(agent, agent.start)
    assert agent.worlds[-1]["members"] == [2, 3, 4]
    results = ended(agent)
    assert [(r["rank"], r["worlds"]) for r in results] == [(i, [1, 2, 3, 4]) for i in range(3)]


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("manual", [[], ["--manual"]])
def test_lost_in_a_collective_of_the_scripts_beside_the_update(job, place, manual):
    agent = job(3, "--size", 800, "--lost", place, *manual)
    assert [r["updates"] for r in ended(agent)] == [agent.round] * 2, words(agent)


@pytest.mark.parametrize("loss", ["kill", "freeze"])
def test_lost_in_the_middle_of_large_messages(job, loss):
    agent = job(3, "--size", 1500, "--rows", 1500000, "--batch", 64, "--manual", "--hold")
    assert agent.stepping(2), words(agent)
    for _ in range(2):
        recovery(agent, lambda: getattr(agent, loss)(agent.alive()[-1]))
    assert len(ended(agent)) == 1 and agent.formation == 3


def test_a_second_is_killed_while_the_others_form_a_world(job):
    random.seed(2)
    agent = job(6, "--size", 4000, "--pause", 0.002, "--manual", "--hold")
    assert agent.stepping()
    for _ in range(2):
        agent.kill(agent.alive()[0])
        time.sleep(random.random() * 0.1)
        agent.kill(agent.alive()[-1])
        alive = agent.alive()
        assert agent.until(lambda: agent.members == alive), words(agent)
        assert agent.stepping(), (words(agent), agent.worlds)
    assert len(ended(agent)) == 2


def test_a_newcomer_takes_the_newest_state(job):
    agent = job(2, "--size", 3000, "--pause", 0.005, "--workers", 1)
    assert agent.stepping(5)
    recovery(agent, agent.start)
    assert agent.worlds[-1]["members"] == [0, 1, 2] and agent.worlds[-1]["rounds"][2] == -1
    assert agent.worlds[-1]["rounds"][0] == agent.worlds[-1]["rounds"][1] >= 5  # all left after the same round
    assert len({r["updates"] for r in ended(agent)}) == 1


def test_nobody_waits_for_the_model_of_a_newcomer(job, tmp_path):
    agent = job(2, tmp_path, script="building.py")
    assert agent.stepping(2), words(agent)
    newcomer = agent.start()
    assert agent.until(lambda: "builds" in agent.log(newcomer)), words(agent)
    before = agent.round
    assert agent.until(lambda: agent.round >= before + 20) and agent.formation == 1, words(agent)
    recovery(agent, lambda: (tmp_path / "made").touch())
    assert agent.worlds[-1]["members"] == [0, 1, 2]
    (tmp_path / "end").touch()
    first, second, last = finished(agent)
    assert [r["begin"][:2] for r in (first, second)] == [[0, 2], [1, 2]] and first["begin"][3] == 1
    assert last["begin"][:2] == last["dist"] == [2, 3] and last["env"] == ["2", "3"] and last["begin"][3] == 0
    assert last["end"][:2] == [2, 3] and last["end"][3] == 2 and last["backend"] == "gloo"
    for call in ("all_reduce", "broadcast", "all_gather", "all_gather_object", "new_group", "ddp"):
        assert "use the group in that function" in last[call], last
    for call in ("lease", "step"):
        assert "under @elasticdl.run" in last[call], last


def test_a_newcomer_has_the_newest_checkpoint_if_the_others_are_lost_before_it_joins(job, tmp_path):
    agent = job(2, tmp_path, tmp_path / "checkpoint.pt", script="building.py")
    assert agent.stepping(3), words(agent)
    newcomer = agent.start()
    assert agent.until(lambda: "builds" in agent.log(newcomer)), words(agent)
    before = agent.round
    assert agent.until(lambda: agent.round >= before + 10), words(agent)
    for p in agent.processes[:2]:
        agent.kill(p)
    assert agent.until(lambda: all(p.gone for p in agent.processes[:2]))
    (tmp_path / "made").touch()
    assert agent.until(lambda: agent.formation == 2) and agent.stepping(1), words(agent)
    assert agent.worlds[-1]["rounds"][0] > before, agent.worlds
    (tmp_path / "end").touch()
    finished(agent)


def test_a_newcomer_that_makes_its_model_is_lost_or_alone(job, tmp_path):
    agent = job(2, tmp_path, script="building.py")
    assert agent.stepping(2), words(agent)
    lost, newcomer = agent.start(), agent.start()
    assert agent.until(lambda: all("builds" in agent.log(p) for p in (lost, newcomer))), words(agent)
    agent.kill(lost)
    before = agent.round
    assert agent.until(lambda: agent.round >= before + 5) and agent.formation == 1, words(agent)
    for p in agent.processes[:2]:
        agent.kill(p)
    (tmp_path / "made").touch()
    assert agent.until(lambda: agent.members == [newcomer]) and agent.stepping(2), words(agent)
    (tmp_path / "end").touch()
    assert [r["end"][:2] for r in finished(agent)] == [[0, 1]]


def test_thirty_random_kills_and_every_record_once(job):
    rng = random.Random(int(os.environ.get("SEED", "1")))
    agent = job(4, "--size", 1000, "--epochs", 500, "--pause", 0.001, "--task", 50, "--batch", 8)
    kills = 0
    while kills < 30:
        assert agent.stepping(rng.randrange(1, 4)), (kills, words(agent), agent.worlds)
        time.sleep(rng.random() * 0.02)
        for _ in range(1 if rng.random() < 0.7 else 2):
            victim = rng.choice(agent.alive() or [None])
            if any(agent.has_state(p) for p in agent.alive() if p is not victim):
                agent.kill(victim)
                kills += 1
            time.sleep(rng.random() * 0.05)
        while sum(p.code() is None for p in agent.processes) < 4:
            agent.start()
    # A process that comes when the others have ended finds no holder of the state.
    assert agent.until(lambda: all(p in agent.members for p in agent.processes if not p.gone)), (
        words(agent),
        agent.worlds,
    )
    agent.epochs = agent.last + 1
    results = ended(agent)
    assert {r["epochs"] for r in results} == {agent.epochs}
    assert all(w["round"] >= 0 for w in agent.worlds[1:]), (words(agent), agent.worlds)  # the state was never lost


def test_what_changes_after_step_is_alike_again_in_the_next_world(job):
    agent = job(3, script="after_step.py")
    assert agent.until(lambda: "waits" in agent.log(agent.processes[1])), words(agent)
    agent.kill(agent.processes[2])
    got = finished(agent)
    assert [r["round"] for r in got] == [5, 5] and {r["before"] for r in got} == {4, 5}, got
    assert got[0]["after"] == got[1]["after"] and got[0]["after"]["steps"] in (4, 5), got


@pytest.mark.parametrize("ranks, size, every", [(1, 48, 2), (2, 80, 2), (2, 48, 4)])
def test_the_batches_of_an_accumulation_do_not_divide_the_records(job, ranks, size, every):
    agent = job(ranks, size, every, script="accumulating.py")
    results = finished(agent)
    assert (
        len(results) == ranks and {r["records"] for r in results} == {size} and len({r["rounds"] for r in results}) == 1
    )


@pytest.mark.parametrize("ranks, size, more", [(2, 48, []), (3, 16, []), (2, 44, ["shards"])])
def test_leases_run_out_unevenly(job, ranks, size, more):
    agent = job(ranks, size, 16, 0, *more, script="leasing.py")
    results = ended(agent)
    assert len(results) == ranks and (more or sum(r["idle"] for r in results)), results


def test_a_newcomer_and_a_loss_while_one_has_no_lease(job):
    agent = job(2, 1600, 1600, 0.02, script="leasing.py")
    assert agent.stepping(2)
    holder = next(p for p in agent.processes if p.leases)
    recovery(agent, agent.start)
    assert len(agent.worlds[-1]["members"]) == 3 and agent.worlds[-1]["round"] >= 2
    recovery(agent, lambda: agent.kill(holder))
    assert [r["formation"] for r in ended(agent)] == [3, 3]


def test_leave_takes_the_others_along_to_the_end_of_a_round(job):
    agent = job(3, "--size", 10000, "--pause", 0.005)
    assert agent.stepping(3)
    leaver = agent.alive()[1]
    leaver.send(op="leave", deadline=time.time() + 30)
    assert agent.stepping(6) and agent.formation == 1, words(agent)  # until the others can do without it
    agent.leave(leaver)
    assert agent.until(lambda: leaver.code() == -signal.SIGTERM), words(agent)
    assert len(ended(agent)) == 2
    assert len(set(agent.worlds[-1]["rounds"])) == 1 and agent.worlds[-1]["round"] >= 6


def test_a_script_acts_on_the_notice_that_it_will_be_taken_away(job, tmp_path):
    notice, deadline = tmp_path / "notice", time.time() + 30
    arguments = (
        "--size",
        2000,
        "--pause",
        0.003,
        "--checkpoint",
        tmp_path / "saved",
        "--every",
        0,
        "--notice",
        notice,
    )
    agent = job(1, *arguments)
    assert agent.stepping(5), words(agent)
    assert not notice.exists()  # elasticdl.leaving() is None
    agent.warn(agent.processes[0], deadline)
    assert agent.until(notice.exists), words(agent)
    said = json.loads(notice.read_text())
    assert said["deadline"] == deadline and time.time() < deadline
    agent.kill(agent.processes[0])
    assert agent.until(lambda: agent.processes[0].gone)
    agent.start()
    ended(agent)
    assert agent.worlds[1]["round"] == said["updates"] >= 5  # of the checkpoint that it has written


def test_one_that_leaves_passes_its_state_on(job):
    agent = job(1, "--size", 10000, "--pause", 0.005)
    assert agent.stepping(3)
    leaver = agent.alive()[0]
    agent.leave(leaver)
    assert agent.until(lambda: agent.formation == 2), words(agent)
    agent.start()
    assert agent.until(lambda: len(agent.worlds[-1]["members"]) == 2), words(agent)
    assert agent.stepping(2)
    agent.leave(leaver)
    assert agent.until(lambda: leaver.code() == -signal.SIGTERM), words(agent)
    assert len(ended(agent)) == 1
    assert agent.worlds[-1]["members"] == [1] and agent.worlds[-1]["round"] >= 5


def test_rounds_go_on_while_the_master_is_away(job):
    agent = job(2, "--size", 1000, "--task", 100, "--pause", 0.002)
    assert agent.stepping(2)
    agent.away = True
    assert agent.until(lambda: not agent.leases), words(agent)  # those that they hold come to their end
    agent.away = False
    assert len(ended(agent)) == 2 and agent.formation == 1


def test_an_error_of_the_scripts_is_raised_at_once(job):
    agent = job(2, "--fail", 5, "--size", 2000)
    assert agent.until(lambda: all(p.code() is not None for p in agent.processes)), words(agent)
    assert 1 in [p.code() for p in agent.processes]
    failed = next(p for p in agent.processes if p.code() == 1)
    assert re.search(r"RuntimeError.*size", agent.log(failed)) and not any(m["op"] == "doubt" for m in failed.heard)


def test_a_loss_that_nobody_explains_is_a_doubt(job):
    agent = job(3, "--size", 20000, "--pause", 0.002)
    assert agent.stepping(3)
    agent.silent = True
    agent.kill(agent.alive()[0])
    assert agent.until(lambda: sum(p.code() == 81 for p in agent.processes) == 2), words(agent)
    assert any(m["op"] == "doubt" and "knows of no lost member" in m["why"] for m in agent.processes[1].heard)


def test_a_loss_may_be_explained_late(job):
    agent = job(3, "--size", 2000, "--pause", 0.002)
    assert agent.stepping(3)
    agent.silent, agent.explain = True, False  # its master is away
    agent.kill(agent.alive()[0])
    # One of the two asks. The other may have sent its part to the lost one, and wait for the one
    # that asks.
    assert agent.until(lambda: any(m["op"] == "explain" for p in agent.processes for m in p.heard)), words(agent)
    agent.silent = False
    with agent.lock:
        agent._recall(True)
    assert len(ended(agent)) == 2 and agent.worlds[-1]["round"] >= 3


def test_without_its_agent_a_process_ends(job):
    agent = job(1, "--size", 20000, "--pause", 0.002)
    assert agent.stepping(3)
    agent.hang_up()
    assert agent.until(lambda: agent.processes[0].code() == 80), words(agent)


def test_all_are_lost_and_the_checkpoint_is_resumed(job, tmp_path):
    path = str(tmp_path / "saved")
    agent = job(2, "--size", 2000, "--pause", 0.003, "--checkpoint", path)
    assert agent.until(lambda: glob.glob(path + "/commit-*/commit.json")), words(agent)
    assert agent.stepping(12)
    for p in agent.alive():
        agent.kill(p)
    assert agent.until(lambda: all(p.gone for p in agent.processes))
    agent.start()
    agent.start()
    assert agent.until(lambda: len(agent.worlds) > 1)
    assert agent.worlds[1]["round"] >= 5 and agent.worlds[1]["round"] % 5 == 0
    ended(agent)


def test_recalled_at_once_again_and_again(job):
    rng = random.Random(int(os.environ.get("SEED", "1")))
    agent = job(2, "--size", 100000, "--manual", "--task", 500, "--batch", 8)
    for formation in range(1, 1 + int(os.environ.get("RECALLS", "60"))):
        assert agent.until(lambda: agent.formation == formation), (formation, words(agent), agent.worlds)
        time.sleep(rng.random() * 0.08)
        with agent.lock:
            agent._recall(True)
