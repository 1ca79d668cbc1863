"""A stand-in for ElasticDL's client of the master. The package uses the agent's socket instead."""

from typing import Any


class MasterClient:
    """An empty object, for arguments of ElasticDL's constructors."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


def build_master_client(*_: Any, **__: Any) -> MasterClient:
    return MasterClient()


GlobalMasterClient = MasterClient
