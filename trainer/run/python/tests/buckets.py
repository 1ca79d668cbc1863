"""Tests of checkpoints in buckets: a server of S3 and one of Google Cloud Storage on this machine.

``make test-torch`` runs them with the Python of ``make storage``, which has the packages.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
import torch

import elasticdl
from elasticdl import commits, places, saving, session

HERE = os.path.dirname(os.path.abspath(__file__))
WHOLE = ["commit.json", "state.pt"]


def server(command, port):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.time() + 120
    while time.time() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return process
        except OSError:
            time.sleep(0.1)
    process.kill()
    raise AssertionError("the server does not listen")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture(scope="module")
def stores():
    """Start both servers, each with an empty bucket, and set the variables of their clients."""
    s3, gs = free_port(), free_port()
    os.environ.update(
        AWS_ACCESS_KEY_ID="test",
        AWS_SECRET_ACCESS_KEY="test",
        AWS_DEFAULT_REGION="us-east-1",
        AWS_ENDPOINT_URL="http://127.0.0.1:%d" % s3,
        STORAGE_EMULATOR_HOST="http://127.0.0.1:%d" % gs,
    )
    started = [
        server([sys.executable, "-m", "moto.server", "-p", str(s3)], s3),
        server([sys.executable, "-m", "gcp_storage_emulator", "start", "--port", str(gs), "--in-memory"], gs),
    ]
    put = urllib.request.Request("http://127.0.0.1:%d/models" % s3, method="PUT")
    urllib.request.urlopen(put).read()
    create = urllib.request.Request(
        "http://127.0.0.1:%d/storage/v1/b?project=test" % gs,
        json.dumps({"name": "models"}).encode(),
        {"Content-Type": "application/json"},
    )
    urllib.request.urlopen(create).read()
    yield
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture(params=["s3", "gs"])
def url(request, stores):
    return "%s://models/%s/%d" % (request.param, "kept", random.getrandbits(60))


def begun(url):
    return saving.Checkpoints(url, 1)._begun()


def at(round, formation=1):
    s = session.Session("gloo", None)
    s.round, s.world = round, s.world._replace(formation=formation)
    return s


def resumed(url):
    s = session.Session("gloo", None)
    saving.Checkpoints(url, 1).resume(s)
    return s


def test_a_checkpoint_in_a_bucket(url):
    saved = saving.Checkpoints(url, 1)
    assert saved.path == url and saved.place.list() == []
    saved.resume(at(0))
    large = torch.arange(3 * places.PART // 8 + 5, dtype=torch.int64)  # more than three parts
    for round in (3, 4):
        assert saved.write(at(round), elasticdl.State(n=round, large=large)) == ""
    assert [(c.round, files) for c, files in begun(url).items()] == [(4, WHOLE)]
    got = resumed(url)
    values = got.loaded()
    assert got.round == 4 and values["n"] == 4 and torch.equal(values["large"], large)


def test_what_fails_in_the_middle_is_no_checkpoint(url):
    saved = saving.Checkpoints(url, 1)
    saved.resume(at(0))
    saved.write(at(1), elasticdl.State(n=1))
    write = saved.place.write

    class Bad:
        def __reduce__(self):
            raise RuntimeError("not this one")

    with pytest.raises(RuntimeError, match="not this one"):
        saved.write(at(2), elasticdl.State(large=torch.zeros(places.PART), bad=Bad()))

    def lost(name, save):
        if name.endswith("commit.json"):
            raise OSError(5, "the connection is lost")
        write(name, save)

    saved.place.write = lost
    with pytest.raises(OSError, match="is lost"):
        saved.write(at(2), elasticdl.State(n=2))
    assert resumed(url).loaded() == {"n": 1}
    saved.place.write = write
    saved.write(at(3), elasticdl.State(n=3))
    assert [(c.round, files) for c, files in begun(url).items()] == [(3, WHOLE)]


def test_later_worlds_and_other_jobs(url):
    """Check that neither an earlier world nor a job that was taken over replaces a checkpoint."""

    class Agent:
        def ask(self, op, **fields):
            assert fields == {"path": url}
            return {"claim": 2}

        def send(self, op, **fields):
            pass

    saved, s = saving.Checkpoints(url, 1), at(5, formation=3)
    s.link = Agent()
    saved.resume(s)
    assert saved.write(s, elasticdl.State(n=5)) == ""
    old = at(9, formation=2)
    old.link = Agent()
    assert saved.write(old, elasticdl.State(n=9)) == "formation 3 has written a checkpoint since"
    owner = json.dumps({"owner": {"name": "other", "job": "u3"}}).encode()
    saved.place.write("owner-00000003", lambda file: file.write(owner))
    with pytest.raises(elasticdl.Error, match="taken over by job other .UID u3"):
        saved.write(s, elasticdl.State(n=6))
    assert resumed(url).loaded() == {"n": 5}


def test_a_reader_whose_commit_is_removed_doubts(url):
    saved = saving.Checkpoints(url, 1)
    saved.resume(at(0))
    saved.write(at(1), elasticdl.State(w=torch.zeros(100)))
    reader = resumed(url)

    def doubted(why):
        raise AssertionError(why)

    reader.doubt = doubted
    saved.write(at(2), elasticdl.State(w=torch.ones(100)))
    with pytest.raises(AssertionError, match="there is a newer one"):
        reader.loaded()


def test_a_bucket_that_is_not_there(stores):
    for scheme in ("s3", "gs"):
        saved = saving.Checkpoints(scheme + "://absent/kept", 1)
        with pytest.raises(Exception) as e:
            saved.write(at(1), elasticdl.State(n=1))
        assert saving._of_storage(e.value) is None, e.value  # it is not tried again


def test_a_package_that_is_missing(monkeypatch):
    for scheme, package in (("s3", "s3fs"), ("gs", "gcsfs")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(elasticdl.Error, match="pip install " + package):
            elasticdl.checkpoint(scheme + "://models/kept")


def test_shards_in_a_bucket(url, tmp_path):
    """Check that sharded state is written to a bucket, and read again."""
    env = dict(os.environ, PYTHONPATH=os.path.dirname(HERE), OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
    env.pop("ELASTICDL_SOCKET", None)
    for epochs in ("1", "2"):
        command = [sys.executable, os.path.join(HERE, "sharded.py"), "--checkpoint", url, "--size", "64"]
        done = subprocess.run(command + ["--epochs", epochs], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 0, done.stdout.decode()
        last = json.loads(done.stdout.splitlines()[-1])
        assert last["wrong"] == [] and last["updates"] == 8 * int(epochs), last
    assert [(c.round, files) for c, files in begun(url).items()] == [(16, [".metadata", "__0_0.distcp", "commit.json"])]


def test_killed_again_and_again(url, tmp_path):
    """Kill a script at any moment, and check that it resumes, and trains each record once."""
    rng = random.Random(5)
    env = dict(os.environ, PYTHONPATH=os.path.dirname(HERE), OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
    env.pop("ELASTICDL_SOCKET", None)
    command = [sys.executable, os.path.join(HERE, "work.py"), "--checkpoint", url, "--every", "1"]
    command += ["--size", "200", "--batch", "2", "--pause", "0.02"]
    rounds = [0]
    while True:
        with open(tmp_path / "log", "w") as log:
            p = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        end = time.time() + 300
        while p.poll() is None and time.time() < end:
            newest = commits.newest(begun(url))
            if len(rounds) < 3 and newest is not None and newest.round > rounds[-1] + 5:
                time.sleep(rng.random() * 0.3)
                p.send_signal(signal.SIGKILL)
                p.wait()
                rounds.append(commits.newest(begun(url)).round)
            time.sleep(0.05)
        text = (tmp_path / "log").read_text()
        if p.returncode != -signal.SIGKILL:
            break
    assert p.returncode == 0, text
    last = json.loads(text.splitlines()[-1])
    assert last["wrong"] == [] and last["updates"] == 100 and len(rounds) == 3, (last, rounds)
    assert [(c.round, files) for c, files in begun(url).items()] == [(100, WHOLE)]
