"""Gives the indices of the records to train on from the leases of the job, with ElasticDL's interface."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, NamedTuple, Optional

import elasticdl
from elasticdl import session as sessions
from elasticdl.leases import Lease

from .blocks import Blocks, Client

TRAINING = 1


class Shard(NamedTuple):
    """Is a range of records."""

    name: str
    start: int
    end: int
    indices: Optional[List[int]]


class DataShardService:
    """Gives shards: ranges of records that no other process has.

    ``dataset_name``, ``shuffle_shards`` and ``task_type`` are accepted and ignored; the order of shards is the master's.
    """

    def __init__(self, master_client: Any = None, batch_size: int = 1, num_epochs: Optional[int] = None,
                 dataset_size: Optional[int] = None, shuffle: bool = False, shuffle_shards: bool = False,
                 task_type: int = TRAINING, num_minibatches_per_shard: int = 0, dataset_name: str = "") -> None:
        self._batch_size, self._dataset_size = batch_size, dataset_size
        self._fields: Optional[Dict[str, Any]] = None
        if dataset_size:
            self._fields = dict(size=dataset_size, epochs=num_epochs or 1, shuffle=shuffle,
                                records_per_task=batch_size * num_minibatches_per_shard)
        self._leases: List[Lease] = []

    def join(self) -> None:
        """Joins the job if the process has not, and declares the data set."""
        if sessions._session is None:
            elasticdl.init()
        if self._fields is not None:
            elasticdl.dataset(**self._fields)

    def fetch_shard(self) -> Optional[Shard]:
        """Returns a shard, None when all records are in the model."""
        self.join()
        lease = elasticdl.lease()
        if lease is None:
            return None
        self._leases.append(lease)
        return Shard("", lease.start, lease.end, lease.indices())

    def report_batch_done(self, batch_size: Optional[int] = None, err_msg: str = "") -> bool:
        """Credits the next records of the shards that were fetched. Call it before the gradients are reduced."""
        rest = batch_size or self._batch_size
        while rest > 0 and self._leases:
            lease = self._leases[0]
            n = min(rest, len(lease) - lease.reported)
            if n:
                lease.done(n)
            rest -= n
            if lease.reported == len(lease):
                self._leases.pop(0)
        return True

    def get_current_task(self) -> Optional[Lease]:
        return self._leases[0] if self._leases else None

    def get_minibatch_count_per_epoch(self) -> int:
        return self._dataset_size // self._batch_size if self._dataset_size else 0


class RecordIndexService(DataShardService):
    """Gives single indices, in the training process or in the workers of a DataLoader that has ``batch_size``."""

    def __init__(self, master_client: Any = None, batch_size: int = 1, num_epochs: Optional[int] = None,
                 dataset_size: Optional[int] = None, task_type: int = TRAINING, shuffle: bool = False, dataset_name: str = "",
                 num_minibatches_per_shard: int = 0) -> None:
        super().__init__(master_client, batch_size, num_epochs, dataset_size, shuffle,
                         num_minibatches_per_shard=num_minibatches_per_shard)
        self.blocks: Any = Blocks(batch_size)
        self._client = Client(self.blocks.path)
        self._mine: Iterator[int] = iter(())

    def join(self) -> None:
        super().join()
        sessions.current().book.sticky = True
        self.blocks.serve()

    def __getstate__(self) -> Any:
        state = dict(self.__dict__, blocks=None, _mine=None, _leases=[])
        return state

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state)
        self._mine = iter(())

    def fetch_record_index(self) -> int:
        """Returns the next index; raises StopIteration at the end, which ends the loader's loop."""
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
