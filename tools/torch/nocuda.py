"""Write empty libraries in place of those of CUDA that PyTorch is linked with.

No CPU calls them. On PyPI there is no build of PyTorch for CPUs on Linux; the libraries that its
wheel is linked with are 2 GB of downloads. All that the loader asks for is that they have the right
names and functions. Each of these functions returns 1, which is an error in every one of the
libraries.
"""

import importlib.util
import pathlib
import re
import subprocess
import tempfile

TORCH = pathlib.Path(importlib.util.find_spec("torch").origin).parent / "lib"
CUDA = re.compile(r"lib(cu|nv|nccl)")
UNVERSIONED = re.compile(r"(cu[A-Z]|cufile|cusparseLt|nccl|nvshmem)[^@]*$")


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def undefined():
    """Return the missing libraries with their symbols' versions, and the undefined symbols.

    None of the libraries that are there defines these symbols.
    """
    there = {p.name: p for d in (TORCH, *TORCH.parent.parent.glob("nvidia/*/lib")) for p in d.glob("*.so*")}
    libraries, wanted, defined = {}, set(), set()
    loaded, queue = set(), ["libtorch_python.so"]
    while queue:
        name = queue.pop()
        if name in loaded or name not in there:
            continue
        loaded.add(name)
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-dW", there[name]))
        for library in needed:
            libraries.setdefault(library, set())
        queue += needed
        for library, needs in re.findall(
            r"File: (\S+) +Cnt: \d+\n((?:.*Name: .*\n)*)", run("readelf", "-VW", there[name])
        ):
            libraries.setdefault(library, set()).update(re.findall(r"Name: (\S+)", needs))
        for line in run("nm", "-D", there[name]).splitlines():
            kind, symbol = line.split()[-2:]
            (wanted if kind in "Uw" else defined).add(symbol.replace("@@", "@"))
    return {n: v for n, v in libraries.items() if CUDA.match(n) and n not in there}, wanted - defined


def write(library, versions, symbols):
    """Write a library that defines the functions; versions names those that have one."""
    script = "\n".join(f"{v} {{ global: {' '.join(f + ';' for f in sorted(versions[v]))} }};" for v in sorted(versions))
    with tempfile.TemporaryDirectory() as directory:
        c, map_ = pathlib.Path(directory, "empty.c"), pathlib.Path(directory, "versions")
        c.write_text("".join(f"int {f}(void) {{ return 1; }}\n" for f in sorted(symbols)))
        map_.write_text(script or "{ global: *; };")
        subprocess.run(
            [
                "cc",
                "-shared",
                "-fPIC",
                "-w",
                "-nostdlib",
                "-o",
                TORCH / library,
                f"-Wl,-soname,{library}",
                f"-Wl,--version-script={map_}",
                c,
            ],
            check=True,
        )
    print(f"{library}: {len(symbols)} functions")


def main():
    missing, symbols = undefined()
    plain = {s for s in symbols if UNVERSIONED.match(s)}
    for library in sorted(missing):
        versions = {v: {s.partition("@")[0] for s in symbols if s.endswith("@" + v)} for v in missing[library]}
        functions = set().union(*versions.values())
        # the loader finds what has no version in any library: all of it is in the first
        if not versions:
            functions, plain = plain, set()
        write(library, versions, functions)


if __name__ == "__main__":
    main()
