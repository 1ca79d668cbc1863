"""Checks the parts that need no other process."""

import os
import time

import pytest

UNITS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "units.py")


@pytest.mark.parametrize("case", ["permutation", "ledger", "cut", "nccl", "alone", "checkpoint_late", "store", "buried", "unfinished"])
def test_unit(case, tmp_path, forker):
    env = dict(os.environ, PYTHONPATH=os.path.dirname(os.path.dirname(UNITS)), OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo",
               PYTHONDONTWRITEBYTECODE="1", WHERE=str(tmp_path))
    env.pop("ELASTICDL_SOCKET", None)
    log = str(tmp_path / "log")
    pid, end = forker.start([UNITS, case], env, log), time.time() + 60
    while pid not in forker.exits and time.time() < end:
        time.sleep(0.01)
    with open(log) as f:
        assert forker.exits.get(pid) == 0, f.read()
