"""Tests of the parts that need no other process."""

import os

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ELASTICAI = [
    "passes",
    "synchronized",
    "scheduler_first",
    "optimizer_arguments",
    "service_arguments",
    "shards",
    "rest_of_a_shard",
    "shuffled",
    "void_shard",
    "controller",
    "deferred",
    "folder",
    "no_torchvision",
    "newcomer_in_mid_task",
    "moved_ledger",
    "void_block",
    "many_tasks",
    "any_ledger",
    "shard_in_mid_task",
    "no_directory",
]
LAWS = [
    "permutation_is_kept",
    "default_tasks",
    "returned_records",
    "rewound",
    "batches",
    "half_a_round",
    "settled_epochs",
    "older_than_its_world",
    "differences",
    "newcomers",
    "received_in_place",
    "watched",
    "interrupted",
    "gaps",
]
CHECKPOINTS = [
    "who_writes",
    "one_at_a_time",
    "no_room",
    "copies_of_tensors",
    "written_whole",
    "killed_anywhere",
    "an_old_file",
    "newer_or_older",
    "order_of_commits",
    "disk_full",
    "storage_fails",
    "claimed",
    "taken_over",
]
MODELS = [
    "accumulation",
    "flagged",
    "options",
    "odd",
    "mixed",
    "two_models",
    "recomputed",
    "unfrozen",
    "unfrozen_by_hand",
    "copies",
    "sparse",
    "phases",
    "ahead",
    "feeds",
    "containers",
    "differences",
    "interrupted",
]


STREAMS = [
    "ends",
    "cuts",
    "reader",
    "orders",
    "again",
    "weightless",
    "lengths",
    "ends_missing",
    "shuffled",
]


REPLICAS = ["agreed", "older_votes", "lost_mate", "left", "meeting", "header", "partial", "apart"]


@pytest.mark.parametrize(
    "case",
    [
        "permutation",
        "ledger",
        "losses",
        "ended",
        "scripts_groups",
        "messages",
        "long_messages",
        "stays_open",
        "nccl",
        "alone",
        "misfits",
        "settling",
        "unfit",
        "checkpoint_late",
        "checkpoint_replaced",
        "store",
        "buried",
        "unfinished",
        "half_a_state",
        "explained",
        "nccl_versions",
        "stuck_beside_nccl",
    ],
)
def test_unit(case, tmp_path, forker):
    runs("units.py", case, tmp_path, forker)


def test_a_checkpoint_that_is_not_written_is_told(tmp_path, forker):
    runs("units.py", "checkpoint_half", tmp_path, forker)
    assert "no checkpoint was written by the last checkpoint()" in (tmp_path / "log").read_text()


def test_origin(tmp_path, forker):
    runs("origins.py", "all", tmp_path, forker)


@pytest.mark.parametrize("case", LAWS)
def test_law(case, tmp_path, forker):
    runs("laws.py", case, tmp_path, forker)


@pytest.mark.parametrize("case", CHECKPOINTS)
def test_checkpoint(case, tmp_path, forker):
    runs("checkpoints.py", case, tmp_path, forker)


@pytest.mark.parametrize("case", MODELS)
def test_model(case, tmp_path, forker):
    runs("models.py", case, tmp_path, forker)


@pytest.mark.parametrize("case", STREAMS)
def test_stream(case, tmp_path, forker):
    runs("streams_units.py", case, tmp_path, forker)


@pytest.mark.parametrize("case", REPLICAS)
def test_replica(case, tmp_path, forker, request):
    if case == "apart" and tuple(int(n) for n in request.config.torch.split(".")[:2]) < (2, 6):
        pytest.skip("torch has no shards")
    runs("replicas_units.py", case, tmp_path, forker)


@pytest.mark.parametrize("case", ELASTICAI)
def test_elasticai(case, tmp_path, forker):
    runs("elasticai_units.py", case, tmp_path, forker)


def runs(script, case, tmp_path, forker):
    env = dict(os.environ, PYTHONPATH=os.path.dirname(HERE), OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo",
               PYTHONDONTWRITEBYTECODE="1", WHERE=str(tmp_path))
    env.pop("ELASTICDL_SOCKET", None)
    log = str(tmp_path / "log")
    code = forker.start([os.path.join(HERE, script), case], env, log).wait()
    with open(log) as f:
        assert code == 0, f.read()
