"""Let a standby leave processors and memory to others until it is needed.

This is a part of the fork server's text, see forkserver.py. Python 3.8 and later; ASCII only.
"""

import os


def yields():
    """Run at the lowest priority, and be the first to end if memory is short.

    Do only what can be undone. Return the functions that undo it.
    """
    return [undo for undo in map(undoable, (nice, oom)) if undo]


def undoable(change):
    """Apply a change if this process may undo it, which a child tries.

    Return what undoes it, or None.
    """
    pid = os.fork()
    if pid == 0:
        try:
            change()()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return change() if os.waitpid(pid, 0)[1] == 0 else None


def nice():
    first = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, 19)

    def undo():
        for thread in os.listdir("/proc/self/task"):
            try:
                os.setpriority(os.PRIO_PROCESS, int(thread), first)
            except ProcessLookupError:
                pass

    return undo


def oom():
    path = "/proc/self/oom_score_adj"
    with open(path) as file:
        first = file.read()
    with open(path, "w") as file:
        file.write("1000")

    def undo():
        with open(path, "w") as file:
            file.write(first)

    return undo
