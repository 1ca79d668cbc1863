"""Tests that resume checkpoints after a change of data set, epochs or loader.

The script trains on every record once, or is refused.
"""

import glob
import json
import os

import pytest

from fake_agent import HERE

#: A data set of 320 records in tasks of 20, of which the first run has trained 10 batches of 16,
#: if it is not said otherwise.
SIZE, TASK, ROUNDS = 320, 20, 10


class Script:
    """Runs of tests/work.py in a world of one, with one checkpoint."""

    def __init__(self, directory, forker):
        self.dir, self.forker, self.runs = directory, forker, 0
        self.path = str(directory / "saved")

    def run(self, size=SIZE, task=TASK, epochs=1, fail=0, batch=16, seed=0, workers=0, ordered=False, same=False):
        """Run the script, which fails in round ``fail`` if given; return exit code and output."""
        self.runs += 1
        log = str(self.dir / ("%d.log" % self.runs))
        arguments = dict(
            size=size,
            task=task,
            epochs=epochs,
            fail=fail,
            batch=batch,
            seed=seed,
            workers=workers,
            checkpoint=self.path,
            every=1,
            rows=4000,
        )
        argv = [os.path.join(HERE, "work.py")] + [
            x for name, value in arguments.items() for x in ("--" + name, str(value))
        ]
        argv += ["--ordered"] * ordered + ["--same"] * same
        env = dict(
            os.environ,
            PYTHONPATH=os.path.dirname(HERE),
            OMP_NUM_THREADS="1",
            GLOO_SOCKET_IFNAME="lo",
            PYTHONDONTWRITEBYTECODE="1",
        )
        env.pop("ELASTICDL_SOCKET", None)
        code = self.forker.start(argv, env, log).wait()
        with open(log) as f:
            return code, f.read()

    def begin(self, **changed):
        """Train until the script fails in the middle."""
        code, text = self.run(**dict(dict(fail=ROUNDS), **changed))
        assert code == 1 and self.record(), text

    def exact(self, **changed):
        """Resume, and check that each record is trained once per epoch; return the updates."""
        code, text = self.run(**changed)
        assert code == 0, text
        last = json.loads(text.splitlines()[-1])
        assert last["wrong"] == [] and last["epochs"] == changed.get("epochs", 1), text
        return last["updates"]

    def refused(self, *words, **changed):
        """Resume, and check for an error with these words that leaves the checkpoint unchanged."""
        before = self.record()
        code, text = self.run(**changed)
        assert code == 1 and "elasticdl.doubt.Error: checkpoint %s cannot be resumed: " % self.path in text, text
        assert all(word in text for word in words), text
        assert self.record() == before

    def record(self):
        """Return the record of the only commit, and its path."""
        (path,) = glob.glob(self.path + "/commit-*/commit.json")
        with open(path) as f:
            return json.load(f), path

    def edit(self, change):
        """Change the record of the only commit."""
        record, path = self.record()
        change(record)
        with open(path, "w") as f:
            json.dump(record, f)


@pytest.fixture
def script(tmp_path, forker):
    return Script(tmp_path, forker)


def test_another_cut_is_refused_in_the_middle_of_an_epoch(script):
    script.begin()
    script.refused(
        "restore that data set",
        "size=320 (the script declares 384)",
        "records_per_task=20 (the script declares 24)",
        size=384,
        task=24,
    )
    script.refused("seed=0 (the script declares 7)", seed=7, workers=2)
    assert script.exact() == 20  # the data set is restored


def test_batches_workers_and_epochs_may_change(script):
    script.begin()
    script.exact(epochs=3, batch=7, workers=2)


def test_a_next_epoch_takes_the_records_that_there_are(script):
    assert script.exact() == 20
    script.refused("1 epochs are complete, of a data set with size=320 (the script declares 384", size=384)
    code, text = script.run(size=384, task=24, epochs=2, seed=3)
    last = json.loads(text.splitlines()[-1])
    assert (
        code == 0 and last["updates"] == 20 + 24 and last["wrong"] == [[i, 1] for i in range(320, 340)]
    ), text  # new ones in one epoch


def test_an_epoch_that_ends_in_mid_training_is_complete(script):
    # the checkpoint is of the end of the first epoch, which its ledger lists
    script.begin(epochs=2, fail=20)
    code, text = script.run(size=384, task=24, epochs=2)
    assert code == 0 and json.loads(text.splitlines()[-1])["updates"] == 20 + 24, text


def test_a_checkpoint_that_names_no_data_set_is_refused_until_the_script_says_that_it_is_the_same(script):
    script.begin()
    script.edit(lambda record: record.pop("cut"))
    script.refused("does not name their data set", "same_data=True")
    assert script.exact(same=True) == 20


def test_a_newcomer_that_has_read_no_checkpoint_refuses_another_data_set(job, script):
    """Check that a state brings its data set to a rank that has not read the checkpoint."""
    script.begin(size=3200, task=200)
    agent = job(1, "--size", 3200, "--task", 200, "--rows", 4000, "--checkpoint", script.path, "--pause", 0.5)
    assert agent.stepping(1)
    agent.command = [x if x != "200" else "400" for x in agent.command if x not in ("--checkpoint", script.path)]
    late = agent.start()
    assert agent.until(lambda: late.code() is not None), agent.log(late)
    assert late.code() == 1 and "records_per_task=200 (the script declares 400)" in agent.log(late), agent.log(late)
    assert "the state of the other ranks cannot be resumed" in agent.log(late)
