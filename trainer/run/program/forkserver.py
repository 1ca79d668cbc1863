"""Fork the processes of a training program from one that has imported torch.

Or be one of them, if this is a standby: it has imported what the script imports, threads or not.

The agent starts this with a socket as descriptor 3 and sends JSON lines:

  {"agent": pid, "path": executable, "orig": [argument, ...], "env": {...}, "learned": [module, ...],
   "start": [beginning of a variable that is read early, ...], "early": file,
   "own": [variable that differs between processes, ...],
   "devices": [beginning of a path, ...], "standby": bool}     first; answered by "ready",
                                                               or by "none" or "bad" and the end
  {"script"|"module": ..., "argv": [...], "orig": [...],
   "processes": [{"env": {...}, "learn": file,
                  "typed": its stdin is its terminal,
                  "stacks": file, "signal": number,            see stacks.py
                  "boot": {...}}, ...]}                        with stdin, stdout and stderr of each
                                                               process as descriptors;
                                                               answered by "pids", or by "error"
  {"go": true}                                                 after "pids": the processes run;
                                                               answered by "went"

A standby takes one order, of one process, which it becomes. A forked process comes from a helper,
which exits, so that the agent becomes its parent. It runs only after "go", when the agent knows it.
Python 3.8 and later; ASCII only.
"""

import sys

# what an interpreter imports before any script
STARTUP = set(sys.modules)
SAFE = getattr(sys.flags, "safe_path", False) or sys.flags.isolated
if not SAFE:
    # of -c: modules of the working directory are the script's
    del sys.path[0]

import array
import ast
import atexit
import ctypes
import importlib
import importlib.machinery
import importlib.util
import json
import os
import runpy
import site
import socket
import sysconfig
import threading
import time

os.set_inheritable(3, False)
sock = socket.socket(fileno=3)
libc = ctypes.CDLL(None)
PR_SET_PDEATHSIG, SIGKILL, TIOCSCTTY = 1, 9, 0x540E


def tell(**message):
    sock.sendall(json.dumps(message).encode() + b"\n")


def receive():
    """Return the next message and the descriptors that came with it.

    Exit if the agent has ended.
    """
    text, fds = b"", array.array("i")
    while not text.endswith(b"\n"):
        data, extra, _, _ = sock.recvmsg(1 << 16, socket.CMSG_SPACE(253 * fds.itemsize))
        if not data:
            os._exit(0)
        text += data
        for level, kind, value in extra:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(value[: len(value) - len(value) % fds.itemsize])
    return json.loads(text.decode()), list(fds)


def title(arguments):
    """Call this process what ps shows of these arguments, as far as there is room."""
    try:
        with open("/proc/self/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        # of the arguments, which the first is the third field
        begin, end = int(fields[45]), int(fields[46])
        text = b"\0".join(os.fsencode(a) for a in arguments)[: end - begin - 1]
        if end > begin > 0:
            ctypes.memmove(begin, text + bytes(end - begin - len(text)), end - begin)
    except (OSError, ValueError, IndexError):
        pass  # it keeps the name of the fork server


# Names of the threads of libraries that survive a fork without them: their handlers of forks leave
# a library that works in both processes. That of jemalloc, which pyarrow has.
SURVIVE = ("jemalloc_bg_thd",)


def threads():
    """Count this thread, and those that a forked process would miss.

    Libraries that are prepared for forks (OpenBLAS) end theirs before one, so one is tried.
    """
    if missed() > 0:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    return 1 + missed()


def missed():
    """Count the other threads, except those without which their library works."""
    count = 0
    for thread in os.listdir("/proc/self/task"):
        try:
            with open("/proc/self/task/%s/comm" % thread) as file:
                name = file.read().strip()
        except OSError:
            continue  # it has ended
        count += int(thread) != os.getpid() and name not in SURVIVE
    return count


def hazard():
    """Return what this process has that a process forked from it could not use.

    None: there is nothing.
    """
    n = 1 if STANDBY else threads()
    return "%d threads" % n if n > 1 else device()


def device():
    """Return the device that this process uses, and that a rank may need.

    None: there is none.
    """
    for fd in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink("/proc/self/fd/" + fd)
        except OSError:
            continue  # that of the listing
        if path.startswith(DEVICES):
            return "%s open" % path  # CUDA and NVML keep it so
    cuda = sys.modules.get("torch.cuda")
    # a flag of PyTorch's: the call touches no device
    if cuda is not None and cuda.is_initialized():
        return "CUDA initialized"
    return None


def installed(name):
    """Report whether a module of that top-level name is from site-packages."""
    places = set(site.getsitepackages() if hasattr(site, "getsitepackages") else [])
    places.update([sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), site.getusersitepackages()])
    # Another environment's, that a .pth file or PYTHONPATH adds.
    places.update(p for p in sys.path if os.path.basename(p) in ("site-packages", "dist-packages"))
    try:
        spec = importlib.util.find_spec(name.partition(".")[0])
    except Exception:
        return False
    origin = os.path.abspath(spec.origin) if spec and spec.origin else ""
    return any(origin.startswith(os.path.join(p, "")) for p in places)


# variables that modules have read while they were imported
READ = set()
# modules that the script imports on its own
HIDDEN = []


def recorded(load):
    """Decorate a function to note the variables that Python code reads meanwhile."""

    def loads(hello):
        kind = type(os.environ)
        plain = kind.__getitem__

        def read(environ, name):
            READ.add(name)
            return plain(environ, name)

        kind.__getitem__ = read
        try:
            load(hello)
        finally:
            kind.__getitem__ = plain

    return loads


def read_early(name):
    """Report whether a variable is read when a module is imported or a library is loaded."""
    return name in READ or name.startswith(START) and not name.startswith("TORCH_NCCL_")


def hidden():
    """Return the names of the modules that are found again when the script imports them.

    They are torch, and those from site-packages.
    """
    own = {}
    names = []
    for name in list(sys.modules):
        top = name.partition(".")[0]
        if top not in own:
            own[top] = top == "torch" or top not in STARTUP and installed(top)
        if own[top] and sys.modules[name] is not None:
            names.append(name)
    return names


@recorded
def load(hello):
    """Import torch, and the modules from site-packages that the program imported before.

    Tell the agent the result.
    """
    try:
        import torch  # noqa: F401
    except ImportError as e:
        tell(none="the interpreter has no torch: %s" % e)
        os._exit(0)
    for name in ("torch.distributed", "torch.nn.parallel"):
        try:
            importlib.import_module(name)
        except Exception:
            pass  # a build without it
    own = set(hello["own"])
    # a hazard that torch brings is reported at each order
    for name in () if hazard() else hello["learned"]:
        if not installed(name):
            continue
        before = set(READ)
        try:
            importlib.import_module(name)
        except BaseException:
            # the script may have handled that, or prepared it
            pass
        early = sorted((READ - before) & own)
        if early:
            tell(bad=name, always=True, why="read %s, which each process has its own of" % early[0])
            os._exit(0)
        why = hazard()
        if why:
            tell(bad=name, always=device() is not None, why=why)
            os._exit(0)
    HIDDEN.extend(hidden())
    tell(ready=True)


def shadowed(path):
    """Return a file of the directory that hides a module that is imported here.

    Plain Python would have imported the file instead of the module.
    """
    suffixes = importlib.machinery.all_suffixes()
    try:
        entries = os.listdir(path)
    except OSError:
        return None
    for entry in entries:
        name = entry.partition(".")[0]
        if name in STARTUP or name not in sys.modules or name in sys.builtin_module_names:
            continue
        if entry[len(name):] in suffixes or os.path.isfile(os.path.join(path, entry, "__init__.py")):
            return os.path.join(path, entry)
    return None


def import_path(order):
    """Return what plain Python puts before sys.path."""
    if "module" in order:
        return os.getcwd()
    return os.path.dirname(os.path.realpath(order["script"]))


def constant(node):
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def settings(statement):
    """Yield the names and values of the variables that a statement of a script sets.

    None: not in its text.
    """
    for node in ast.walk(statement):
        pairs = []
        if isinstance(node, ast.Assign):
            pairs = [(t, node.value) for t in node.targets]
            pairs = [(getattr(t.slice, "value", t.slice) if sys.version_info < (3, 9) else t.slice, v) for t, v in pairs
                     if isinstance(t, ast.Subscript) and named(t.value) == "environ"]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of = named(node.func.value)
            if of == "environ" and node.func.attr == "setdefault" and len(node.args) == 2:
                name = constant(node.args[0])
                pairs = [] if name in os.environ else [node.args]
            elif of == "environ" and node.func.attr == "update":
                pairs = [(ast.Constant(k.arg), k.value) for k in node.keywords if k.arg]
                pairs += [pair for d in node.args if isinstance(d, ast.Dict) for pair in zip(d.keys, d.values)]
            elif of == "os" and node.func.attr == "putenv" and len(node.args) == 2:
                pairs = [node.args]
        for name, value in pairs:
            if name is not None and constant(name) is not None:
                yield constant(name), constant(value)


def named(node):
    """Return the last name of an expression such as os.environ."""
    return getattr(node, "attr", getattr(node, "id", None))


def sets_early(script, env):
    """Return a variable that a script sets before it imports a module that reads it then.

    None: its text has none.
    """
    try:
        with open(script, "rb") as file:
            statements = ast.parse(file.read()).body
    except (OSError, SyntaxError, ValueError):
        return None  # said when it runs
    tops = {name.partition(".")[0] for name in HIDDEN}
    for statement in statements:
        for node in ast.walk(statement):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            if any(name.partition(".")[0] in tops for name in names):
                return None
        for name, value in settings(statement):
            if read_early(name) and (value is None or value != env.get(name)):
                return name
    return None


def refusal(order):
    """Return why these processes must not be forked, None if they may."""
    why = hazard()
    if why:
        return "the fork server has %s: a library that it imported is the cause" % why
    shadow = None if SAFE else shadowed(import_path(order))
    if shadow:
        return "%s has the name of a module that torch imports" % shadow
    early = sets_early(order["script"], order["processes"][0]["env"]) if "script" in order else None
    if early:
        return "the script sets %s before the import that reads it" % early
    return None


def start(order, fds):
    """Fork the processes, tell their pids, and let them run.

    Return in each of them its number, in this process None.
    """
    why = refusal(order)
    if why:
        tell(error=why, pids=[])
        for fd in fds:
            os.close(fd)
        return None
    news, news_end = os.pipe()
    go, go_end = os.pipe()
    helper = os.fork()
    if helper == 0:
        for index in range(len(order["processes"])):
            try:
                pid = os.fork()
            except OSError as e:
                os.write(news_end, ("error %s\n" % e).encode())
                os._exit(1)
            if pid == 0:
                os.setsid()
                os.close(news)
                os.close(go_end)
                os.write(news_end, b"%d %d\n" % (index, os.getpid()))
                os.close(news_end)
                settle(order["processes"][index], index, fds, go)
                return index
        os._exit(0)
    os.close(news_end)
    os.close(go)
    text = b""
    while text.count(b"\n") < len(order["processes"]) and b"error" not in text:
        data = os.read(news, 1 << 16)
        if not data:
            text += b"error the helper was killed\n"
        text += data
    os.waitpid(helper, 0)
    os.close(news)
    for fd in fds:
        os.close(fd)
    pids, why = [0] * len(order["processes"]), None
    for line in text.decode().splitlines():
        first, _, rest = line.partition(" ")
        if first == "error":
            why = "fork: " + rest
        else:
            pids[int(first)] = int(rest)
    if why:
        tell(error=why, pids=[pid for pid in pids if pid])
    else:
        tell(pids=pids)
        receive()
        os.write(go_end, b"g" * len(pids))
        tell(went=True)
    os.close(go_end)  # who has read nothing ends
    return None


def become(order, fds):
    """Be the process that the agent has ordered. Return its number, None after a refusal."""
    why = refusal(order)
    if why:
        tell(error=why, pids=[])
        for fd in fds:
            os.close(fd)
        return None
    tell(pids=[os.getpid()])
    receive()
    for undo in YIELDED:
        undo()
    tell(went=True)
    sock.close()
    take(order["processes"][0], 0, fds)
    adopt(order["processes"][0])
    return 0


def settle(process, index, fds, go):
    """Set descriptors as the agent ordered, wait for "go", then set the environment."""
    sock.close()
    take(process, index, fds)
    if os.read(go, 1) != b"g":
        os._exit(1)
    os.close(go)
    libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    if os.getppid() != AGENT:
        os._exit(1)
    adopt(process)


def take(process, index, fds):
    """Take the standard streams of a process."""
    for stream in range(3):
        os.dup2(fds[3 * index + stream], stream)
    for fd in fds:
        os.close(fd)
    if process.get("typed"):
        libc.ioctl(0, TIOCSCTTY, 0)


def adopt(process):
    """Set the environment and the name of a process."""
    env = process["env"]
    # with what an interpreter needs that begins again
    process["start"] = dict(env, **process["boot"])
    title(ORIG + ["[rank %s]" % env["RANK"]])
    for name in set(OWN) | set(GIVEN):
        # Changes by a wrapper of the interpreter (pyenv, a script that sets LD_LIBRARY_PATH) apply
        # here, too.
        if OWN.get(name) != GIVEN.get(name) and env.get(name) == GIVEN.get(name):
            env.pop(name, None)
            if name in OWN:
                env[name] = OWN[name]
    os.environ.clear()
    os.environ.update(env)
    threads = env.get("OMP_NUM_THREADS", "")
    if threads != GIVEN.get("OMP_NUM_THREADS", "") and threads.isdigit():
        # OpenMP has read the variable of this server
        sys.modules["torch"].set_num_threads(int(threads))
    if process.get("stacks"):
        register_stacks(process["stacks"], process["signal"])  # noqa: F821


class Listener:
    """Writer of the names of the modules that imports look for to a file.

    The file is for the next fork server. The listener itself finds no module.
    """

    def __init__(self, path):
        self.path, self.seen = path, set(sys.modules)

    def find_spec(self, name, path=None, target=None):
        if name not in self.seen:
            self.seen.add(name)
            try:
                fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                os.write(fd, name.encode() + b"\n")
                os.close(fd)
            except (OSError, UnicodeError):
                pass
        return None


class Gate:
    """Find the modules that the fork server has imported once the script imports them.

    If the script has set a variable by then that they had read, this process begins again, with a
    fresh interpreter. Plain Python finds none of them in sys.modules before, either.
    """

    def __init__(self, start):
        self.start, self.directory = start, os.getcwd()
        self.before = dict(os.environ)
        self.modules = {name: sys.modules.pop(name) for name in HIDDEN if name in sys.modules}

    def find_spec(self, name, path=None, target=None):
        module = self.modules.get(name)
        if module is None:
            return None
        now = dict(os.environ)
        changed = sorted(n for n in set(now) | set(self.before) if now.get(n) != self.before.get(n) and read_early(n))
        if changed:
            self.again(changed)
        top = name.partition(".")[0]
        for other in list(self.modules):
            if other != name and (top == "torch" or other.partition(".")[0] == top):
                sys.modules[other] = self.modules.pop(other)
        origin = getattr(getattr(module, "__spec__", None), "origin", None)
        return importlib.machinery.ModuleSpec(
            name, Found(self, module), origin=origin, is_package=hasattr(module, "__path__")
        )

    def again(self, changed):
        try:
            with open(EARLY, "w") as file:
                file.write(" ".join(changed))
            for stream in sys.stdout, sys.stderr:
                stream.flush()
            os.chdir(self.directory)
            os.execve(PATH, ORIG, self.start)
        except Exception as e:
            sys.stderr.write(
                "elasticdl: %s is set too late: start again with a fresh interpreter: %s\n" % (", ".join(changed), e)
            )


class Found:
    """Load a module that is there."""

    def __init__(self, gate, module):
        self.gate, self.module, self.spec = gate, module, getattr(module, "__spec__", None)

    def create_module(self, spec):
        return self.module

    def exec_module(self, module):
        module.__spec__ = self.spec
        self.gate.modules.pop(module.__name__, None)
        if not self.gate.modules and self.gate in sys.meta_path:
            sys.meta_path.remove(self.gate)


def rest():
    """Wait until all threads that are not Python's sleep, a second at most.

    They sleep at three looks in a row. A thread of gloo's drops the tensors of its last collective
    some time after its waiter has continued. Before 3.14, Python ends a thread that wants its lock
    while the interpreter ends, and inside C++ that aborts the process.
    """
    end, asleep = time.monotonic() + 1, 0
    while asleep < 3 and time.monotonic() < end and len(os.listdir("/proc/self/task")) > 1:
        # gives Python's lock away: who waits for it can run now
        time.sleep(0.001)
        pythons = {t.native_id for t in threading.enumerate()} | {threading.get_native_id()}
        asleep += 1
        for thread in os.listdir("/proc/self/task"):
            try:
                with open("/proc/self/task/%s/stat" % thread) as stat:
                    state = stat.read().rpartition(")")[2].split()[0]
            except OSError:
                continue  # it has ended
            if state != "S" and int(thread) not in pythons:
                asleep = 0


def prepare(order, process):
    """Give the interpreter the state that it has at the beginning of a script."""
    if sys.version_info < (3, 14):
        # the first that is registered is the last that runs
        atexit.register(rest)
    # Each rank draws its own numbers, as after an import. The random module sees to that itself.
    generator = getattr(sys.modules.get("torch"), "default_generator", None)
    if generator is not None:
        # not torch.seed(), which would seed GPUs as well
        generator.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "multiprocessing.process" in sys.modules:
        module = sys.modules["multiprocessing.process"]
        module.ORIGINAL_DIR = os.getcwd()
        module.current_process().authkey = os.urandom(32)
    # Python has looked at the standard input of the fork server: whether it can be sought, and is a
    # terminal.
    sys.stdin = sys.__stdin__ = open(
        0, encoding=sys.stdin.encoding, errors=sys.stdin.errors, newline="\n", closefd=False
    )
    sys.argv = order["argv"]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = sys.orig_argv[:1] + order["orig"][1:]
    if not SAFE:
        sys.path.insert(0, import_path(order))
    if process.get("learn"):
        sys.meta_path.insert(0, Listener(process["learn"]))
    sys.meta_path.insert(0, Gate(process["start"]))
    scope = sys.modules["__main__"].__dict__
    kept = {name: scope.get(name) for name in ("__annotations__",) if name in scope}
    scope.clear()
    scope.update(kept)
    scope.update(
        __name__="__main__", __doc__=None, __package__=None, __loader__=importlib.machinery.BuiltinImporter,
        __spec__=None, __builtins__=sys.modules["builtins"],
    )
    return scope


def run_script(script, scope):
    path = script
    if sys.version_info >= (3, 9) and not os.path.isabs(path):
        # unchanged: plain Python leaves "./" and ".." in it
        path = os.getcwd() + "/" + path
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as e:
        sys.stderr.write("%s: can't open file %r: [Errno %d] %s\n" % (sys.executable, path, e.errno, e.strerror))
        sys.exit(2)
    scope.update(__file__=path, __loader__=importlib.machinery.SourceFileLoader("__main__", path))
    if sys.version_info < (3, 15):
        scope.update(__cached__=None)
    exec(compile(source, path, "exec", dont_inherit=True), scope)


def run(order, process):
    """Run the script or module as __main__. An exception is shown without this file's frames."""
    scope = prepare(order, process)
    try:
        if "module" in order:
            runpy._run_module_as_main(order["module"])
        else:
            run_script(order["script"], scope)
    except SystemExit:
        raise
    except BaseException as e:
        trace = e.__traceback__
        while trace and trace.tb_frame.f_code.co_filename == run.__code__.co_filename:
            trace = trace.tb_next
        hook, sys.excepthook = sys.excepthook, lambda *_: None
        hook(type(e), e.with_traceback(trace), trace)
        # to the interpreter, which ends as after any exception
        raise


def serve():
    """Obey the agent. Return in a process that was forked: what to run."""
    while True:
        order, fds = receive()
        index = become(order, fds) if STANDBY else start(order, fds)
        if index is not None:
            return order, order["processes"][index]


hello = receive()[0]
AGENT, GIVEN, OWN, DEVICES = hello["agent"], hello["env"], dict(os.environ), tuple(hello["devices"])
ORIG, PATH, START, EARLY = hello["orig"], hello["path"], tuple(hello["start"]), hello["early"]
STANDBY = hello["standby"]
title(ORIG + ["[standby]" if STANDBY else "[fork server]"])
YIELDED = yields() if STANDBY else []  # noqa: F821
load(hello)
run(*serve())
