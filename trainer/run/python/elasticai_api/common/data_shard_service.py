"""Shards and indices of the records to train on, from the job's leases.

Names and arguments are those of ElasticDL.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, Iterator, List, NamedTuple, NoReturn, Optional

import elasticdl
from elasticdl import session as sessions
from elasticdl.leases import Lease, Range
from elasticdl.rounds import Credit

from ..util.log_utils import warn_once
from .blocks import Block, Blocks, Client, admit

TRAINING = 1


class Shard(NamedTuple):
    """A range of records.

    ``indices`` are the records to train on, in order. Without ``shuffle`` they are [``start``,
    ``end``).
    """

    name: str
    start: int
    end: int
    indices: Optional[List[int]]


class _Given:
    """A shard that the script has: a lease, in the turn in which it was given."""

    def __init__(self, lease: Lease) -> None:
        self.lease, self.turn, self.reported = lease, lease.turn, lease.credited

    def report(self, n: int) -> Range:
        first, self.reported = self.reported, self.reported + n
        return Range(self.lease, self.turn, Credit(self.lease.epoch, self.lease.number, first, self.reported))


class DataShardService:
    """A source of shards: ranges of records that no other process has.

    ``num_minibatches_per_shard`` is by default the value of the job's flag
    ``--num_minibatches_per_task``; without the flag the package chooses it. ``dataset_name`` is the
    name of all shards. ``master_client`` has no effect: the package uses the agent's socket. Only
    shards of type TRAINING are given: another ``task_type`` raises elasticdl.Error.
    """

    def __init__(self, master_client: Any = None, batch_size: int = 1, num_epochs: Optional[int] = None,
                 dataset_size: Optional[int] = None, shuffle: bool = False, shuffle_shards: bool = False,
                 task_type: int = TRAINING, num_minibatches_per_shard: int = 0, dataset_name: str = "") -> None:
        if task_type != TRAINING:
            raise elasticdl.Error(
                "task_type=%r: only TRAINING shards are given; read the data of an evaluation or a prediction without the service"
                % task_type
            )
        if shuffle_shards and not shuffle:
            warn_once("shuffle_shards=True has no effect: give shuffle=True, which shuffles the records")
        self._batch_size, self._dataset_size = batch_size, dataset_size
        self._name, self._pid = dataset_name, os.getpid()
        self._controller: Any = None  # None: the script runs the rounds
        # a shard was completed since the last report_batch_done()
        self._completed = False
        per_shard = num_minibatches_per_shard or int(os.environ.get("ELASTICDL_NUM_MINIBATCHES_PER_TASK", "0"))
        self._fields: Optional[Dict[str, Any]] = None
        if dataset_size:
            self._fields = dict(size=dataset_size, epochs=num_epochs or 1, shuffle=shuffle,
                                records_per_task=batch_size * per_shard)
        self._shards: List[_Given] = []

    def join(self) -> None:
        """Join the job if the process has not, and declare the data set.

        Raise elasticdl.Error in another process, such as a loader worker, or if the size of the
        data set is not known.
        """
        if os.getpid() != self._pid:
            raise elasticdl.Error(
                "shards are given to the training process alone; a DataLoader's worker has fetch_record_index() of a RecordIndexService"
            )
        if sessions._session is None:
            elasticdl.init()
        if self._fields is not None:
            elasticdl.dataset(**self._fields)
        elif not sessions.current().book.used:
            raise elasticdl.Error(
                "the size of the data set is not known: give dataset_size=len(dataset) and num_epochs"
            )

    def fetch_shard(self) -> Optional[Shard]:
        """Return the next shard; None when all records are in the model.

        While others have the remaining records, a controller takes part in their rounds.
        """
        self.join()
        lease = elasticdl.lease() if self._controller is None else self._controller._lease()
        if lease is None:
            return None
        # A new world calls the training function again, which has no shards of an earlier one.
        if self._controller is None:
            self._shards = [s for s in self._shards if s.turn == s.lease.turn and len(s.lease)]
        self._shards.append(_Given(lease))
        return Shard(self._name, lease.start + lease.credited, lease.end, lease.indices())

    def next_block(self) -> Optional[Block]:
        """Return the ranges of the next batch, from the shards that were fetched.

        The batch has ``batch_size`` records, or as many as are left of these shards.
        """
        return self._claim(self._batch_size)

    def _claim(self, rest: int) -> Block:
        ranges = []
        while rest > 0 and self._shards:
            shard = self._shards[0]
            n = min(rest, len(shard.lease) - shard.reported)
            if n:
                ranges.append(shard.report(n))
            rest -= n
            if shard.reported == len(shard.lease):
                self._shards.pop(0)
                self._completed = True
        return Block([], tuple(ranges))

    def report_batch_done(self, batch_size: Optional[int] = None, err_msg: str = "") -> bool:
        """Credit the next records of the fetched shards; return whether a shard is complete.

        Call it before the gradients are reduced. ``batch_size`` is the number of records, by
        default that of the service. With a controller nothing is credited here: ``elastic_run``
        does that. ``err_msg`` raises elasticdl.Error, because a batch cannot be given back.
        """
        if err_msg:
            raise elasticdl.Error(
                "report_batch_done(err_msg=%r): a batch cannot be given back; let the error end the process, then others train on it"
                % err_msg
            )
        if self._controller is None:
            block = self._claim(batch_size or self._batch_size)
            if block.ranges:
                sessions.current().pending.extend(admit([block], sys.maxsize)[0])
        completed, self._completed = self._completed, False
        return completed

    def get_task(self, task_type: Any = None) -> NoReturn:
        raise elasticdl.Error("get_task() is not there: call fetch_shard()")

    def get_current_task(self) -> Optional[Lease]:
        return self._shards[0].lease if self._shards else None

    def get_minibatch_count_per_epoch(self) -> int:
        return self._dataset_size // self._batch_size if self._dataset_size else 0


class RecordIndexService(DataShardService):
    """A source of single record indices, in the training process or in loader workers.

    The DataLoader must have the ``batch_size`` of the service.
    """

    def __init__(
        self,
        master_client: Any = None,
        batch_size: int = 1,
        num_epochs: Optional[int] = None,
        dataset_size: Optional[int] = None,
        task_type: int = TRAINING,
        shuffle: bool = False,
        dataset_name: str = "",
        num_minibatches_per_shard: int = 0,
    ) -> None:
        super().__init__(master_client, batch_size, num_epochs, dataset_size, shuffle, task_type=task_type,
                         num_minibatches_per_shard=num_minibatches_per_shard, dataset_name=dataset_name)
        self.blocks: Any = Blocks(batch_size)
        self._client = Client(self.blocks.path)
        self._mine: Iterator[int] = iter(())

    def join(self) -> None:
        super().join()
        sessions.current().book.sticky = True
        self.blocks.serve()

    def next_block(self) -> Optional[Block]:
        """Return the block of the batch that the loader delivers next; None if there is none."""
        block: Optional[Block] = self.blocks.next()
        return block

    def __getstate__(self) -> Any:
        state = dict(self.__dict__, blocks=None, _mine=None, _shards=[], _controller=None)
        return state

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state)
        self._mine = iter(())

    def fetch_record_index(self) -> int:
        """Return the next index; raise StopIteration at the end, which ends the loader's loop."""
        for index in self._mine:
            return index
        indices = self._block()
        if not indices:
            raise StopIteration("all records are in the model")
        self._mine = iter(indices)
        return next(self._mine)

    def _block(self) -> List[int]:
        import torch.utils.data

        worker = torch.utils.data.get_worker_info()
        if worker is not None:
            return self._client.ask(worker.id, worker.num_workers)
        block = self.blocks.make(0)
        return block.indices if block else []


def build_data_shard_service(batch_size: int, num_epochs: Optional[int] = None, dataset_size: Optional[int] = None,
                             shuffle: bool = False, shuffle_shards: bool = False, task_type: int = TRAINING,
                             num_minibatches_per_shard: int = 0, dataset_name: str = "") -> DataShardService:
    return DataShardService(None, batch_size, num_epochs, dataset_size, shuffle, shuffle_shards, task_type,
                            num_minibatches_per_shard, dataset_name)
