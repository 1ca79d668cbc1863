"""ElasticDL's folder of images, whose indices come from the job."""

import sys
from typing import Any


def _folder() -> Any:
    """Return torchvision's ImageFolder, or ``object`` if torchvision is not installed."""
    try:
        from torchvision.datasets import ImageFolder
    except ImportError:
        return object
    return ImageFolder


ImageFolder: Any = _folder()


class ElasticImageFolder(ImageFolder):
    """A folder of images of which the job chooses the next one.

    With a service its length is ``sys.maxsize``, and the index that a loader asks for is ignored.
    Without one it is torchvision's ImageFolder. Its constructor raises ImportError if torchvision
    is not installed.
    """

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
