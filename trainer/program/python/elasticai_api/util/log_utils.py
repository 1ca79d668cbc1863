"""Has the logger that ElasticDL's examples import."""

import logging
import sys

default_logger = logging.getLogger("elasticai_api")
if not default_logger.handlers:
    _handler = logging.StreamHandler(sys.stderr)
    _handler.setFormatter(logging.Formatter("[%(asctime)s] [%(levelname)s] [%(name)s] %(message)s"))
    default_logger.addHandler(_handler)
    default_logger.setLevel(logging.INFO)
    default_logger.propagate = False
