"""The default group of a newcomer until it joins the others, which train meanwhile.

It has a rank and a size, so that a script can ask for them. A barrier ends at once: the others have
passed it when they began. Every other collective would need the others, and raises Error.
"""

from __future__ import annotations

import re
from typing import Any, Callable, NoReturn

import torch
import torch.distributed as dist

from .doubt import Error

#: Methods of a group, of any version of torch, and of a store, that need the other ranks.
_OF_GROUPS = re.compile("_?(all|broadcast|gather|recv|reduce|scatter|send|split|merge)")
_OF_STORES = re.compile("(add|append|check|compare_set|delete_key|get|num_keys|set|wait)$|(multi|queue)_")


def _refuse(name: str) -> Callable[..., NoReturn]:
    def method(*args: Any, **kwargs: Any) -> NoReturn:
        raise Error(
            "%s: the others train, and do not wait for this process before it calls the function under "
            "@elasticdl.run: use the group in that function" % name
        )

    return method


class Outside(dist.ProcessGroup):
    """A group without a connection."""

    #: torch 2.x looks for the devices of a group's backends.
    _device_types = [torch.device("cpu")]

    def _get_backend(self, device: Any) -> Any:
        return self

    def getBackendName(self) -> str:
        return "gloo"

    def barrier(self, *args: Any, **kwargs: Any) -> Any:
        done: Any = torch.futures.Future()
        done.set_result([])
        return torch._C._distributed_c10d._create_work_from_future(done)

    monitored_barrier = barrier


class NoStore(dist.Store):
    """The store of such a group, from which a script could make groups of its own."""

    def set_timeout(self, *args: Any) -> None:
        """Do nothing: nothing is waited for."""

    def clone(self) -> "NoStore":
        return self


for _name in filter(_OF_GROUPS.match, dir(dist.ProcessGroup)):
    setattr(Outside, _name, _refuse(_name))
for _name in filter(_OF_STORES.match, dir(dist.Store)):
    setattr(NoStore, _name, _refuse("dist.new_group"))
