"""The logger that ElasticDL's examples import."""

import logging
import sys
from typing import Set

default_logger = logging.getLogger("elasticai_api")
if not default_logger.handlers:
    _handler = logging.StreamHandler(sys.stderr)
    _handler.setFormatter(logging.Formatter("[%(asctime)s] [%(levelname)s] [%(name)s] %(message)s"))
    default_logger.addHandler(_handler)
    default_logger.setLevel(logging.INFO)
    default_logger.propagate = False

_said: Set[str] = set()


def warn_once(text: str) -> None:
    """Log a warning, unless this process has logged the same one before."""
    if text not in _said:
        _said.add(text)
        default_logger.warning(text)
