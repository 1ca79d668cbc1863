"""Tests of the time by its use."""

import importlib.util
import os

import pytest

PATH = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "elasticdl", "spent.py")
# The package needs torch, which this Python may lack; the module does not.
_spec = importlib.util.spec_from_file_location("spent", PATH)
spent = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(spent)


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(spent.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(spent, "_spent", {})
    monkeypatch.setattr(spent, "_uses", [])
    monkeypatch.setattr(spent, "_since", 100.0)

    def passes(seconds):
        now[0] += seconds

    return passes


def test_time_counts_for_the_innermost_use(clock):
    clock(7)
    assert spent.report() == {}
    with spent.COMPUTE:
        clock(1)
        with spent.PEERS:
            clock(2)
            assert spent.report() == {"compute": 1000, "peers": 2000}
            clock(2)
        with spent.CHECKPOINT:
            clock(0.5)
        clock(1)
    clock(9)
    assert spent.report() == {"compute": 2000, "peers": 4000, "checkpoint": 500}


def test_waits_for_ranks_that_have_the_records_are_for_records(clock):
    with spent.COMPUTE, spent.DATA:
        clock(1)
        with spent.PEERS:
            clock(2)
    assert spent.report() == {"compute": 0, "data": 3000}


def test_a_use_ends_with_an_error(clock):
    with pytest.raises(RuntimeError):
        with spent.FORMING:
            clock(1)
            raise RuntimeError
    clock(1)
    assert spent.report() == {"forming": 1000}
