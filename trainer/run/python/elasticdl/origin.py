"""The check that a process of a job has the package of its agent, and no other version.

The agent puts its package first on PYTHONPATH, so a package that is installed in the image is not
imported. ``python -E`` and ``-I`` ignore PYTHONPATH.
"""

from __future__ import annotations

import filecmp
import os

from .doubt import Error


def check() -> None:
    """Raise Error if this package differs from the agent's."""
    place = os.environ.get("ELASTICDL_PACKAGE")
    if not place:
        return  # there is no agent
    agents = os.path.join(place, "elasticdl")
    here = os.path.dirname(os.path.abspath(__file__))
    if not os.path.isdir(agents) or os.path.realpath(agents) == os.path.realpath(here):
        return
    if not _same(agents, here):
        raise Error(
            "the package elasticdl in %s is not that of this job's agent, which is in %s: "
            "start Python without -E and -I, and leave %s first on sys.path" % (here, agents, os.path.dirname(agents))
        )


def _same(one: str, other: str) -> bool:
    for directory, _, files in os.walk(one):
        place = os.path.join(other, os.path.relpath(directory, one))
        sources = [name for name in files if name.endswith(".py")]
        if filecmp.cmpfiles(directory, place, sources, shallow=False)[0] != sources:
            return False
    return True
