"""Write the stacks of a process to a file of the agent when the agent sends a signal.

Both ways to start a process have this text: the fork server, and sitecustomize.py of a process that
was started by exec. Python 3.8 and later; ASCII only.
"""


def register_stacks(path, number, lowest=500):
    """Have the signal write the stacks of all threads to the file, without the interpreter's lock.

    The file gets the descriptor's number first, which is the least free one from lowest on. A
    failure has no effect, nor has the call if the signal has a handler.
    """
    import faulthandler
    import os

    try:
        with open("/proc/self/status") as status:
            caught = [int(line.split()[1], 16) for line in status if line.startswith("SigCgt:")]
        if caught and caught[0] >> (number - 1) & 1:
            return  # of a runtime in a library, as that of Go
        opened = os.open(path, os.O_RDWR | os.O_APPEND)
        fd = opened
        for other in range(lowest, lowest + 100):
            try:
                os.fstat(other)
            except OSError:
                try:
                    fd = os.dup2(opened, other, inheritable=False)
                    os.close(opened)
                except OSError:
                    pass  # the limit is lower
                break
        faulthandler.register(number, file=fd, all_threads=True, chain=False)
        os.write(fd, b"%d\n" % fd)
    except Exception:
        pass
