"""The end of all operations in a process group of gloo, whatever its peers do.

``abort`` of PyTorch's gloo does nothing. But when a receive times out, gloo closes all connections
of its group, and the other operations in the group fail as if all peers were lost. So a receive of
a message that nobody sends ends a group, in some milliseconds. No other process takes part, and
tensors that were given to the group are not written later.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, Iterable, List

import torch
import torch.distributed as dist

#: Timeout of the receive. Gloo counts milliseconds.
MOMENT = timedelta(milliseconds=1)
#: Tag of the message that nobody sends. A script's messages have smaller ones.
TAG = 0x45_4C_00

#: As it was before the package replaced it.
_wait: Any = dist.Work.wait


def abort(group: Any) -> str:
    """Close all connections of a group of gloo; return why they are open, or "".

    Operations in the group have failed, or fail now. Any thread may call the function.
    """
    for peer in range(group.size()):
        if peer != group.rank():
            for device in range(_devices()):
                why = _close(group, peer, TAG + device)
                if why:
                    return "the connection to rank %d is open: %s" % (peer, why)
    return ""


def _close(group: Any, peer: int, tag: int) -> str:
    """Let receives from a peer time out until one fails without a wait, as of a lost peer.

    Return the error of the last one, if that does not happen.
    """
    why = ""
    for _ in range(4):
        try:
            _wait(group.recv([torch.empty(1)], peer, tag), MOMENT)
            why = "it has received a message"
        except RuntimeError as e:
            why = str(e)
            if "Timed out" not in why:
                return ""
    return why


def _devices() -> int:
    """Return the number of network devices of a group, each of which has its connections.

    Gloo chooses the device by the tag.
    """
    return len(os.environ.get("GLOO_SOCKET_IFNAME", "").split(","))


def of_gloo(groups: Iterable[Any]) -> List[Any]:
    """Return gloo's own groups of ``groups``, each once, without those of one rank.

    They are groups of torch.distributed, or backends of such, or None.
    """
    found: List[Any] = []
    for group in groups:
        if hasattr(group, "_get_backend"):
            try:
                group = group._get_backend(torch.device("cpu"))
            except RuntimeError:
                # The group has no backend for the processor.
                continue
        group = getattr(group, "wrapped_pg", group)  # TORCH_DISTRIBUTED_DEBUG=DETAIL
        if isinstance(group, dist.ProcessGroupGloo) and group.size() > 1 and all(group is not g for g in found):
            found.append(group)
    return found
