"""Uses a TCPStore as PyTorch's programs do. The first argument names the action; MASTER_ADDR and
MASTER_PORT say where."""

import datetime
import os
import sys
import threading
import time

import torch
import torch.distributed as dist

MODERN = not torch.__version__.startswith("1.")


def store(seconds=60):
    return dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None if MODERN else 1, False,
                         datetime.timedelta(seconds=seconds), wait_for_workers=False)


def same(what, got, want):
    assert got == want, f"{what}: {got!r}, want {want!r}"


def fails(what, call, *words):
    try:
        call()
    except (RuntimeError, dist.DistError if MODERN else RuntimeError) as e:
        assert not words or any(w in str(e) for w in words), f"{what}: {e}"
    else:
        raise AssertionError(f"{what} does not fail")


def basics():
    a, b = store(), store()
    a.set("k", "v")
    same("get", b.get("k"), b"v")
    same("add", (a.add("n", 5), b.add("n", -7), a.get("n")), (5, -2, b"-2"))
    same("num_keys", a.num_keys(), 2)
    same(
        "compare_set",
        (a.compare_set("k", "v", "w"), a.compare_set("k", "x", "y"), a.compare_set("none", "x", "y")),
        (b"w", b"w", b"x"),
    )
    same("compare_set of nothing", a.compare_set("new", "", "y"), b"y")
    same("delete_key", (a.delete_key("k"), a.delete_key("k")), (True, False))
    big = os.urandom(5 << 20)
    a.set("big", big)
    same("big value", b.get("big"), big)
    threading.Timer(0.2, lambda: (b.set("later", "1"), b.set("latest", "2"))).start()
    a.wait(["later", "latest"], datetime.timedelta(seconds=60))
    same("after the wait", a.get("latest"), b"2")
    fails("wait for nothing", lambda: a.wait(["never"], datetime.timedelta(milliseconds=300)), "imeout", "imed out")
    same("after a timeout", a.add("n", 10), 8)
    if MODERN:
        modern(a, b)


def modern(a, b):
    a.append("l", "x")
    a.append("l", "y")
    same("append", b.get("l"), b"xy")
    a.multi_set(["m1", "m2"], ["1", "2"])
    same("multi_get", b.multi_get(["m1", "m2", "l"]), [b"1", b"2", b"xy"])
    same("check", (a.check(["m1", "m2"]), a.check(["m1", "no"])), (True, False))
    assert a.has_extended_api()
    if hasattr(a, "queue_push"):
        a.queue_push("q", "1")
        a.queue_push("q", "2")
        same("queue_len", a.queue_len("q"), 2)  # it is applied then
        same("queue_len", b.queue_len("q"), 2)
        same("queue_pop", (b.queue_pop("q"), b.queue_pop("q")), (b"1", b"2"))
        fails("pop of an empty queue", lambda: b.queue_pop("q", False), "empty")
        threading.Timer(0.2, lambda: a.queue_push("q", "3")).start()
        same("queue_pop that waits", b.queue_pop("q"), b"3")
    if hasattr(a, "list_keys"):
        same("list_keys", {"m1", "m2", "l"} - set(a.list_keys()), set())
    if hasattr(a, "barrier"):
        threads = [threading.Thread(target=store().barrier, args=("bar", 3)) for _ in range(2)]
        [t.start() for t in threads]
        a.barrier("bar", 3)
        [t.join() for t in threads]
        fails(
            "a barrier to which nobody comes",
            lambda: a.barrier("alone", 2, datetime.timedelta(milliseconds=300)),
            "imeout",
        )
    same("after a timeout", a.add("m1", 1), 2)
    c = a.clone()
    same("clone", c.get("m2"), b"2")


def group():
    """Is one rank of a group that sums."""
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    t = torch.ones(1) * (dist.get_rank() + 1)
    dist.all_reduce(t)
    all_ranks = [None] * dist.get_world_size()
    dist.all_gather_object(all_ranks, dist.get_rank())
    same("sum", (t.item(), all_ranks), (6.0, [0, 1, 2]))
    dist.barrier()
    dist.destroy_process_group()


def closed():
    """Waits for what never comes, and is freed by the end of the store."""
    s, idle = store(), store()
    print("waiting", flush=True)
    fails("wait", lambda: s.get("never"))
    fails("add", lambda: idle.add("n", 1))
    # for the threads of 1.x, which abort the process if their connection is reset
    time.sleep(0.5)
    print("alive", flush=True)


def meet():
    s = store()
    s.wait(["from Go"])
    s.set(torch.__version__, s.get("from Go"))


{"meet": meet, "basics": basics, "group": group, "closed": closed}[sys.argv[1]]()
print("done", flush=True)
