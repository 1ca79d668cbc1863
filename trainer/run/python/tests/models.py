"""The cases of training in test_units.py: what scripts do with models, optimizers and records."""

import copy
import io
import os
import pickle
import sys
import threading
from collections import Counter, OrderedDict, defaultdict

import torch
from torch.utils.checkpoint import checkpoint

import elasticdl
from elasticdl import gradients, session, states

elasticdl.init()
torch.manual_seed(0)
DATA = [torch.full((4,), float(i)) for i in range(64)]
reduced = []  # the parameters of each reduction
finish = gradients.Reducer.finish


def noted(self, session):
    finish(self, session)
    reduced.append(set(self.of))


gradients.Reducer.finish = noted


def training(net, members, each):
    """Run ``each`` for every batch."""

    @elasticdl.run
    def train(state):
        for i, x in enumerate(elasticdl.records(DATA, 8, shuffle=False)):
            each(i, x)
            elasticdl.step()
        return True

    assert train(elasticdl.State(**members))


def refused(word, do):
    try:
        do()
    except elasticdl.Error as e:
        assert word in str(e), e
        return
    raise AssertionError("not refused")


def accumulation():
    """Check that backward passes add up as in torch, and that batches of a round count together."""
    model = torch.nn.Linear(4, 1, bias=False)
    got = []

    @elasticdl.run
    def train(state):
        net = elasticdl.DistributedDataParallel(model)
        for i, x in enumerate(elasticdl.records(DATA, 8, shuffle=False)):
            if i % 2 == 0:
                with net.no_sync():
                    net(x).mean().backward()
                continue
            net(x).mean().backward()
            got.append(float(model.weight.grad[0, 0]))
            model.zero_grad()
            elasticdl.step()

    train(elasticdl.State(model=model))
    assert got == [15, 47, 79, 111] and len(reduced) == 4, (got, reduced)


def flagged():
    """Check that the forward pass reads the flag that loops set instead of no_sync().

    torch's own class shows what is correct.
    """
    model, twin = torch.nn.Linear(4, 1, bias=False), torch.nn.Linear(4, 1, bias=False)
    got, want, forms = [], [], []
    theirs = torch.nn.parallel.DistributedDataParallel(twin)

    def noted(_, bucket):
        forms.append(1)
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    theirs.register_comm_hook(None, noted)

    def passes(net, x, kind):
        if kind == "flag":
            net.require_backward_grad_sync = False
            net(x).mean().backward()
            net.require_backward_grad_sync = True
        elif kind == "flag set between":  # too late for this backward pass
            out = net(x)
            net.require_backward_grad_sync = False
            out.mean().backward()
            net.require_backward_grad_sync = True
        elif kind == "no_sync around forward":
            with net.no_sync():
                out = net(x)
            out.mean().backward()
        elif kind == "evaluated between":
            out = net(x)
            with torch.no_grad(), net.no_sync():
                net(x)
            out.mean().backward()
        elif kind == "left by an error":
            try:
                with net.no_sync():
                    raise KeyError
            except KeyError:
                net(x).mean().backward()
        else:
            net(x).mean().backward()

    kinds = [
        "flag",
        "flag set between",
        "no_sync around forward",
        "evaluated between",
        "left by an error",
        "plain",
        "flag",
        "plain",
    ]

    @elasticdl.run
    def train(state):
        net = elasticdl.DistributedDataParallel(model)
        for kind, x in zip(kinds, elasticdl.records(DATA, 8, shuffle=False)):
            del reduced[:], forms[:]
            passes(net, x, kind)
            passes(theirs, x, kind)
            got.append(len(reduced))
            want.append(len(forms))
            elasticdl.step()

    train(elasticdl.State(model=model))
    assert got == want == [0, 1, 0, 1, 1, 1, 0, 1], (got, want)


def options():
    """Check that options of torch's DistributedDataParallel work, or are refused with a remedy."""
    model, ddp = torch.nn.Linear(4, 1), elasticdl.DistributedDataParallel
    net = ddp(
        model,
        device_ids=None,
        output_device=None,
        find_unused_parameters=True,
        gradient_as_bucket_view=True,
        static_graph=True,
        broadcast_buffers=False,
        process_group=None,
        bucket_cap_mb=5,
    )
    assert ddp(model, [0]).module is model
    refused("one device", lambda: ddp(model, [0, 1]))
    refused("broadcast_buffers=True) is not supported: buffers are", lambda: ddp(model, broadcast_buffers=True))
    refused("process_group=", lambda: ddp(model, process_group=torch.distributed.group.WORLD))
    refused("torch.autocast", lambda: ddp(model, mixed_precision=object()))
    refused("broadcast_buffers=True", lambda: setattr(net, "broadcast_buffers", True))
    net.find_unused_parameters = net.static_graph = False
    for name, word in (
        ("join", "records() hands batches"),
        ("register_comm_hook", "after backward()"),
        ("_set_static_graph", "leave it out"),
        ("other", "no attribute"),
    ):
        try:
            getattr(net, name)
        except AttributeError as e:
            assert word in str(e), e
        else:
            raise AssertionError(name)
        assert not hasattr(net, name)
    try:
        ddp(model, find_unused=True)
    except TypeError as e:
        assert "no option 'find_unused'" in str(e), e
    else:
        raise AssertionError("an option that nobody has")


def odd():
    """Check that the last round of an accumulation repeats a batch, and credits what it has."""
    model = torch.nn.Linear(4, 1, bias=False)
    passes = []

    @elasticdl.run
    def train(state):
        net = elasticdl.DistributedDataParallel(model)
        for i, x in enumerate(elasticdl.records(DATA, 8, shuffle=False)):
            passes.append(float(x[0, 0]))
            if i % 3 < 2:
                with net.no_sync():
                    net(x).mean().backward()
                continue
            net(x).mean().backward()
            elasticdl.step()

    train(elasticdl.State(model=model))
    assert passes == [0, 8, 16, 24, 32, 40, 48, 56, 56], passes
    assert session.current().round == 3 and sum(session.current().ledger.values()) == 64


def mixed():
    """Check parameters of two types, a scaler if torch has one, and the state of optimizers."""
    model = torch.nn.ModuleList([torch.nn.Linear(4, 8), torch.nn.Linear(8, 1).bfloat16()])
    optimizer = torch.optim.Adam(model.parameters())
    members = dict(model=model, optimizer=optimizer, rate=torch.optim.lr_scheduler.StepLR(optimizer, 1))
    scaler = torch.amp.GradScaler("cpu") if hasattr(torch.amp, "GradScaler") else None
    if scaler:
        members["scaler"] = scaler
    net = elasticdl.DistributedDataParallel(model)

    def each(i, x):
        optimizer.zero_grad()
        loss = model[1](model[0](x).bfloat16()).float().mean()
        (scaler.scale(loss) if scaler else loss).backward()
        assert {p.grad.dtype for p in model.parameters()} == {torch.float32, torch.bfloat16}
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        members["rate"].step()

    training(net, members, each)
    state, saved = elasticdl.State(**members), io.BytesIO()
    torch.save(state.collect(), saved)
    saved.seek(0)
    kept = {"weights_only": False} if int(torch.__version__.split(".")[0]) > 1 else {}
    state.load(torch.load(saved, **kept))
    assert int(optimizer.state_dict()["state"][0]["step"]) == 8 and members["rate"].last_epoch == 8


def two_models():
    """Check a generator whose backward pass runs through the discriminator, with two optimizers."""
    g, d = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    of_g, of_d = torch.optim.Adam(g.parameters()), torch.optim.Adam(d.parameters())
    net_g, net_d = elasticdl.DistributedDataParallel(g), elasticdl.DistributedDataParallel(d)

    def each(i, x):
        of_d.zero_grad()
        (net_d(x).mean() - net_d(net_g(x).detach()).mean()).backward()
        of_d.step()
        of_g.zero_grad()
        net_d(net_g(x)).mean().backward()
        of_g.step()

    training(net_g, dict(g=g, d=d, of_g=of_g, of_d=of_d), each)
    assert reduced.count(set(g.parameters())) == 8 and reduced.count(set(d.parameters())) == 16


def recomputed():
    """Check activation checkpoints, with a backward pass in another, and gradients of gradients."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    net = elasticdl.DistributedDataParallel(model)

    def each(i, x):
        x.requires_grad_(True)
        for reentrant in (True, False):
            model.zero_grad()
            model[1](checkpoint(model[0], x, use_reentrant=reentrant)).mean().backward()
            want = torch.autograd.grad(model(x).mean(), list(model.parameters()))
            assert all(torch.allclose(p.grad, w) for p, w in zip(model.parameters(), want)), (i, reentrant)
        model.zero_grad()
        slope, = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        ((slope.norm() - 1) ** 2).backward()

    training(net, dict(model=model), each)


def unfrozen():
    """Check that parameters are averaged when trained, and that frozen ones do not block."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    model[0].requires_grad_(False)
    elasticdl.DistributedDataParallel(model)

    def each(i, x):
        model[0].requires_grad_(i >= 4)
        net = elasticdl.DistributedDataParallel(model)
        model.zero_grad()
        net(x).mean().backward()

    training(None, dict(model=model), each)
    assert [len(r) for r in reduced] == [2] * 4 + [4] * 4, reduced


def unfrozen_by_hand():
    """Check that allreduce_gradients averages what requires gradients when it is called."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    other = torch.nn.Linear(4, 1)

    def each(i, x):
        model[0].requires_grad_(i % 4 >= 2)
        model.zero_grad()
        (model(x) + other(x)).mean().backward()
        elasticdl.allreduce_gradients(model)
        elasticdl.allreduce_gradients(other.parameters())

    training(None, dict(model=model), each)
    assert [len(r) for r in reduced] == [2, 2, 2, 2, 4, 2, 4, 2] * 2, reduced
    assert len(gradients._reducers) == 2  # none is kept of what is frozen


def copies():
    """Check that a copy of a wrapped module or of the wrapper has hooks of its own when used.

    It can also be saved whole.
    """
    model = torch.nn.Linear(4, 1)
    net = elasticdl.DistributedDataParallel(model)
    twin = copy.deepcopy(net)
    whole = io.BytesIO()
    torch.save(model, whole)

    def each(i, x):
        twin(x).mean().backward()

    training(net, dict(model=model), each)
    assert len(reduced) == 8 and all(r == set(twin.parameters()) for r in reduced)


def sparse():
    model = torch.nn.Embedding(100, 4, sparse=True)
    net = elasticdl.DistributedDataParallel(model)
    refused("sparse=False", lambda: training(net, dict(model=model), lambda i, x: net(x.long()).mean().backward()))


def phases():
    """Check that a second training function is refused.

    When the first returns, the process needs no further world.
    """
    state = elasticdl.State(n=0)
    once = elasticdl.run(lambda state: 1)
    refused("once", lambda: elasticdl.run(lambda state: once(state))(state))


def ahead():
    """Check that another thread cannot fetch records: they would be credited too early."""
    wrong = []

    @elasticdl.run
    def train(state):
        def fetch():
            refused("workers=", lambda: next(elasticdl.records(DATA, 8)))
            wrong.append(True)

        t = threading.Thread(target=fetch)
        t.start()
        t.join()

    train(elasticdl.State(n=0))
    assert wrong


def feeds():
    """Check that a data set that is made again leaves no workers of the former one."""
    def children():
        with open("/proc/self/task/%d/children" % os.getpid()) as f:
            return len(f.read().split())

    @elasticdl.run
    def train(state):
        for _ in range(3):
            next(elasticdl.records(list(DATA), 8, workers=1))
        return children()

    assert train(elasticdl.State(n=0)) == 1


def containers():
    """Check that a newcomer gets containers of the same types."""
    values = {
        "a": defaultdict(int, x=1),
        "b": Counter("aab"),
        "c": OrderedDict(t=torch.ones(2)),
        "d": [torch.zeros(1), (1, {"k": torch.ones(3)})],
    }
    tensors = []
    back = states._join(states._split(values, tensors), tensors)
    assert len(tensors) == 3 and [type(back[k]) for k in "abcd"] == [defaultdict, Counter, OrderedDict, list]
    back["a"]["new"] += 1
    assert torch.equal(back["d"][1][1]["k"], torch.ones(3))


def differences():
    """Check that only differences of two states are copied.

    Equal states have equal digests, also if one was read from a file.
    """
    def members(seed):
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
        model.anchor = torch.nn.Parameter(torch.zeros(0))  # nothing to sum
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            model(torch.ones(3, 4)).sum().backward()
            optimizer.step()
        return elasticdl.State(
            model=model,
            optimizer=optimizer,
            rate=torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 2]),
            epoch=1,
            sums=[torch.ones(2), 3.5],
        )

    def differ(a, b):
        pieces = states._Pieces(a.collect()), states._Pieces(b.collect())
        assert len(pieces[0]) == len(pieces[1])
        parts = pieces[0].parts([x != y for x, y in zip(*(p.digests() for p in pieces))])
        b._take(pieces[1].join(parts, [t.clone() for t in pieces[0].tensors(parts)]))
        return {name: (skeleton is not None, len(places)) for name, (skeleton, places) in parts.items()}

    a, b = members(1), members(1)
    b.load(pickle.loads(pickle.dumps(a.collect())))
    assert differ(a, b) == {}
    a.model[1].running_mean += 1  # each rank's own, until the world changes
    assert differ(a, b) == {"model": (False, 1)} and float(b.model[1].running_mean[0]) == float(
        a.model[1].running_mean[0]
    )
    a.sums[0][1] = 7
    a.epoch = 2
    a.rate.step()
    assert differ(a, b) == {"optimizer": (True, 12), "rate": (True, 0), "epoch": (True, 0), "sums": (False, 1)}
    assert (b.epoch, b.sums[0].tolist(), b.rate.last_epoch) == (2, [1, 7], 1) and differ(a, b) == {}
    a.model[0].weight.data[0, 0] *= -1
    assert differ(a, b) == {"model": (False, 1)} and torch.equal(a.model[0].weight, b.model[0].weight)


def interrupted():
    """Check that a BaseException that is no Exception is raised on, and that the world stays."""
    def train(state):
        raise KeyboardInterrupt

    try:
        elasticdl.run(train)(elasticdl.State(n=0))
    except KeyboardInterrupt:
        return
    raise AssertionError("no KeyboardInterrupt")


globals()[sys.argv[1]]()
