# Text of sitecustomize.py, behind stacks.py, in a directory of its own that comes first in
# PYTHONPATH. It undoes what leads an interpreter to it, and then is the sitecustomize that plain
# Python finds.


def start_exec():
    """Register the stacks in the process that the agent has started, which leads its session."""
    import os
    import sys

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if path != here]
    sys.path_importer_cache.pop(here, None)
    before = os.environ.pop("ELASTICDL_PYTHONPATH", None)
    if before is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = before
    number, _, path = os.environ.pop("ELASTICDL_STACKS", "").partition(" ")
    if number.isdigit() and os.getpid() == os.getsid(0):
        register_stacks(path, int(number))  # noqa: F821
    sys.modules.pop("sitecustomize", None)


start_exec()
import sitecustomize  # noqa: E402, F401
