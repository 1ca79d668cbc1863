"""The check of a package that is not the agent's, for test_units.py."""

import os
import shutil
import tempfile

import elasticdl
from elasticdl import origin

here = os.path.dirname(os.path.abspath(elasticdl.__file__))


def refused():
    try:
        origin.check()
    except elasticdl.Error as e:
        assert here in str(e) and agents in str(e), e
        return True
    return False


with tempfile.TemporaryDirectory() as agents:
    assert not refused()  # there is no agent
    os.mkdir(os.path.join(agents, "elasticdl"))
    os.chdir(agents)
    assert not refused()  # a folder of that name where the script runs
    os.rmdir(os.path.join(agents, "elasticdl"))
    os.environ["ELASTICDL_PACKAGE"] = os.path.dirname(here)
    assert not refused()
    os.environ["ELASTICDL_PACKAGE"] = agents
    copy = os.path.join(agents, "elasticdl")
    shutil.copytree(here, copy)
    assert not refused()  # it is the same version
    for name in ("loop.py", "integrations/rounds.py"):
        with open(os.path.join(copy, name), "a") as f:
            f.write("#\n")
        assert refused(), name
        try:
            elasticdl.init()
            raise AssertionError("init() accepts another version")
        except elasticdl.Error as e:
            assert "-E and -I" in str(e), e
        shutil.copy(os.path.join(here, name), os.path.join(copy, name))
    os.remove(os.path.join(copy, "integrations", "rounds.py"))
    assert not refused()  # only what the agent has must be there
    open(os.path.join(copy, "later.py"), "w").close()
    assert refused()
print("passes")
