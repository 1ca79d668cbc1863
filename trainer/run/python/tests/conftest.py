"""Fixtures that start jobs with the Python whose torch is tested.

That Python is ELASTICDL_TEST_PYTHON, by default the one that runs the tests.
"""

import os
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from fake_agent import HERE, Agent, Forker  # noqa: E402

PYTHON = os.environ.get("ELASTICDL_TEST_PYTHON", sys.executable)


def pytest_configure(config):
    found = subprocess.run(
        [PYTHON, "-c", "import torch; print(torch.__version__)"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    if found.returncode:
        raise pytest.UsageError("%s has no torch: set ELASTICDL_TEST_PYTHON to a Python that has" % PYTHON)
    config.torch = found.stdout.decode().strip()


def pytest_report_header(config):
    return "torch %s of %s" % (config.torch, PYTHON)


@pytest.fixture(scope="session")
def forker():
    f = Forker(PYTHON)
    yield f
    f.close()


@pytest.fixture
def job(tmp_path, forker):
    """Return a function that starts a job of ``n`` processes."""
    agents = []

    def start(n, *arguments, script="work.py", **env):
        directory = tmp_path / str(len(agents))
        directory.mkdir()
        agent = Agent(str(directory), forker, [os.path.join(HERE, script)] + [str(x) for x in arguments], n, env)
        agents.append(agent)
        for _ in range(n):
            agent.start()
        return agent

    yield start
    for agent in agents:
        agent.close()
