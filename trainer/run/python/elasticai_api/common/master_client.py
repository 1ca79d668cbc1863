"""Stands for ElasticDL's client of the master; the agent's socket is the package's own."""

from typing import Any


class MasterClient:
    """Is accepted wherever ElasticDL's constructors want one; it holds nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


def build_master_client(*_: Any, **__: Any) -> MasterClient:
    return MasterClient()


GlobalMasterClient = MasterClient
