"""Check a wheel of elasticdl as a user has it: installed, imported, and read by mypy.

    python3 tools/release/check.py WHEEL TORCH MYPY

TORCH and MYPY are virtual environments with PyTorch and mypy. It prints nothing if all is well.
"""

import pathlib
import subprocess
import sys
import tempfile
import venv

#: A script that is right, and one whose types are wrong in a way that only the wheel's types show.
RIGHT = """
import elasticdl

elasticdl.init()
state = elasticdl.State(step=0)


@elasticdl.run
def train(state: elasticdl.State) -> int:
    rank: int = elasticdl.world().rank
    elasticdl.step()
    return rank


train(state)
"""
WRONG = """
import elasticdl

rank: str = elasticdl.world().rank
"""


def run(*command, fails=False):
    """Run a command; print its output and exit if it fails, or if it succeeds and fails is set."""
    ended = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if (ended.returncode != 0) != fails:
        sys.exit("%s: exit code %d\n%s" % (" ".join(map(str, command)), ended.returncode, ended.stdout))
    return ended.stdout


def main(wheel, torch, mypy):
    version = pathlib.Path(wheel).name.split("-")[1]
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        venv.create(directory / "venv", with_pip=True)
        python = directory / "venv/bin/python"
        run(python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel)
        for text, fails in ((RIGHT, False), (WRONG, True)):
            script = directory / "script.py"
            script.write_text(text)
            out = run(mypy + "/bin/mypy", "--strict", "--cache-dir", directory / "cache", "--python-executable",
                      python, script, fails=fails)
            if fails and "expression has type \"int\", variable has type \"str\"" not in out:
                sys.exit("mypy does not see the types of the wheel:\n" + out)
        packages = [str(p.resolve()) for p in pathlib.Path(torch).glob("lib/python3*/site-packages")]
        [site] = (directory / "venv").glob("lib/python3*/site-packages")
        (site / "torch.pth").write_text("\n".join(packages))
        script.write_text(RIGHT + """
from importlib import metadata

assert elasticdl.__file__.startswith(%r), elasticdl.__file__
assert metadata.version("elasticdl") == %r, metadata.version("elasticdl")
""" % (str(directory), version))
        run(python, "-E", script)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
