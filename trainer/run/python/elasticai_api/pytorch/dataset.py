"""Has ElasticDL's folder of images, whose indices come from the job."""

import sys
from typing import Any


def _folder() -> Any:
    """Returns torchvision's class; without it none can be made of ours, and everything else can."""
    try:
        from torchvision.datasets import ImageFolder
    except ImportError:
        return object
    return ImageFolder


ImageFolder: Any = _folder()


class ElasticImageFolder(ImageFolder):
    """Is a folder of images; its length is without end, and the index that a loader asks for is
    ignored."""

    def __init__(self, root: str, *args: Any, data_shard_service: Any = None, **kwargs: Any) -> None:
        if ImageFolder is object:
            raise ImportError(
                "ElasticImageFolder needs torchvision: install it, or write a Dataset over RecordIndexService"
            )
        self._service = data_shard_service
        super().__init__(root, *args, **kwargs)

    def set_data_shard_service(self, service: Any) -> None:
        self._service = service

    def __len__(self) -> int:
        return sys.maxsize if self._service is not None else int(super().__len__())

    def __getitem__(self, index: int) -> Any:
        if self._service is not None:
            index = self._service.fetch_record_index()
        return super().__getitem__(index)
