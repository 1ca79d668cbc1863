"""The names of the commits of a checkpoint, and their order. Nothing here reads or writes.

A checkpoint is a directory, or a prefix in a bucket. Each state that is saved is a *commit* in it,
a directory of its own::

    PATH/owner-00000002                                       claim 2 of the directory, by the agent
    PATH/commit-00000002-00000005-00000400-1/state.pt         the state
    PATH/commit-00000002-00000005-00000400-1/commit.json      what it is; written last

The numbers are those of the claim, of the formation (the generation of the world), of the round,
and of the write by that process. A commit is complete if it has ``commit.json``. The newest one is the
complete one with the largest numbers. So a process of an earlier world never replaces the
checkpoint of a later one, however long it takes, and no store needs locks or renames.
"""

from __future__ import annotations

import re
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional

#: The file that makes a commit complete.
RECORD = "commit.json"
#: The file with the state of a commit that one rank wrote.
STATE = "state.pt"


class Commit(NamedTuple):
    """The numbers in the name of a commit; a larger commit is a newer one."""

    claim: int
    formation: int
    round: int
    write: int

    @property
    def name(self) -> str:
        return "commit-%08d-%08d-%08d-%d" % self


_COMMIT = re.compile(r"commit-(\d{8,})-(\d{8,})-(\d{8,})-(\d+)$")
_OWNER = re.compile(r"owner-(\d{8,})$")


def parse(name: str) -> Optional[Commit]:
    """Return the commit of that name, None if it is the name of something else."""
    found = _COMMIT.match(name)
    commit = Commit(*map(int, found.groups())) if found else None
    return commit if commit is not None and commit.name == name else None


def of(names: Iterable[str], files: Callable[[str], List[str]]) -> Dict[Commit, List[str]]:
    """Return the commits that were begun, with their files, from the names in a checkpoint.

    ``files`` returns the files in a directory.
    """
    return {commit: files(commit.name) for commit in map(parse, names) if commit is not None}


def newest(begun: Dict[Commit, List[str]]) -> Optional[Commit]:
    """Return the newest complete commit, None if there is none."""
    return max((c for c, files in begun.items() if RECORD in files), default=None)


def outdated(begun: Dict[Commit, List[str]], by: Commit) -> List[str]:
    """Return the files of all commits before ``by``, in the order in which they are to be removed.

    The record of a commit comes first: a commit that is being removed is not complete.
    """
    old = [(c, file) for c, files in begun.items() if c < by for file in files]
    return ["%s/%s" % (c.name, file) for c, file in sorted(old, key=lambda x: (x[1] != RECORD, x))]


def owner(files: Iterable[str]) -> Optional[str]:
    """Return the file of the newest claim, None if there is none."""
    claims = {int(found.group(1)): found.group(0) for found in map(_OWNER.match, files) if found}
    return claims[max(claims)] if claims else None


def claim_of(file: str) -> int:
    """Return the number of a claim by the name of its file."""
    return int(file[len("owner-"):])
