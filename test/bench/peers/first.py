"""Import torch, and what else workload.py imports, write the time of the first line, and end.

    first.py UNTIL DIRECTORY MEGABYTES [transformers]
"""
import torch  # noqa: F401

import workload  # noqa: F401
