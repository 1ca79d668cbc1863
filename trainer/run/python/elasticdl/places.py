"""Where checkpoints are: a directory of a file system, or a prefix in a bucket.

A place has files, which appear whole or not at all. It lists, reads, writes and removes them.
Nothing is renamed by its users, nothing is locked, and two files do not appear together. Buckets
are reached by fsspec, which PyTorch 2 brings, Hugging Face and Lightning use, and
torch.distributed.checkpoint writes through: one way for all stores.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
from typing import Any, BinaryIO, Callable, Dict, Iterable, List, Optional, Tuple, Union
from urllib.parse import parse_qsl, urlsplit

from .doubt import Error

#: A function that writes the content of a file, to a path or to an open file.
Save = Callable[[Any], None]

#: The size of the parts in which files are sent to a bucket, and of the ranges that are read.
PART = 32 << 20


class Directory:
    """A directory of a file system, which is made when it is needed."""

    def __init__(self, path: str) -> None:
        self.name = os.path.abspath(path)

    def path(self, name: str) -> str:
        return os.path.join(self.name, name)

    def list(self, directory: str = "") -> List[str]:
        """Return the names in the directory, or in one of its directories; none if there is none."""
        try:
            return sorted(os.listdir(self.path(directory)))
        except FileNotFoundError:
            return []

    def read(self, name: str) -> BinaryIO:
        """Open a file. It stays readable if it is removed, but on some network file systems."""
        return open(self.path(name), "rb")

    def write(self, name: str, save: Save) -> None:
        """Make a file appear, whole and lasting, with what ``save`` writes to an open file."""
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        partial = "%s.%d.tmp" % (path, os.getpid())
        try:
            with open(partial, "wb") as file:
                _save_to(file, save)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
            _sync_names(os.path.dirname(path))
        finally:
            if os.path.exists(partial):
                os.unlink(partial)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files in this order, and the directories that are empty then."""
        for name in names:
            for path, remove in ((self.path(name), os.unlink), (os.path.dirname(self.path(name)), os.rmdir)):
                try:
                    remove(path)
                except OSError as e:
                    if e.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                        raise


def _sync_names(directory: str) -> None:
    """Wait until the names in a directory are on the disk, if its file system can do that."""
    file = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(file)
    except OSError as e:
        if e.errno not in (errno.EINVAL, errno.EBADF):
            raise
    finally:
        os.close(file)


#: By scheme: the package that fsspec needs, and the function for the options after the ``?``.
_PACKAGES = {"s3": "s3fs", "gs": "gcsfs"}


class Bucket:
    """The objects of a bucket whose names begin with a prefix."""

    def __init__(self, url: str) -> None:
        self.name, scheme, self.root, options = parse_url(url)
        package = _PACKAGES[scheme]
        try:
            fsspec = importlib.import_module("fsspec")
            importlib.import_module(package)
        except ImportError as e:
            raise Error(
                "checkpoint(%r) needs the package %s, by which fsspec opens %s://: pip install %s (%s)"
                % (url, package, scheme, package, e)
            ) from e
        # A listing must show what others have written, so none is kept.
        self.options: Dict[str, Any] = dict(options, use_listings_cache=False)
        self.fs: Any = fsspec.filesystem(scheme, **self.options)

    def path(self, name: str) -> str:
        return self.root + "/" + name

    def url(self, name: str) -> str:
        return self.name + "/" + name

    def list(self, directory: str = "") -> List[str]:
        """Return the names below the prefix, or in one of its directories, each up to a slash."""
        prefix = self.path(directory).rstrip("/") + "/"
        try:
            found = self._do(lambda: self.fs.ls(prefix, detail=False, refresh=True))
        except FileNotFoundError:
            return []
        names = (path[len(prefix):].strip("/") for path in found if path.startswith(prefix))
        return sorted(name for name in names if name)

    def read(self, name: str) -> Any:
        """Open an object. It is read in ranges, when they are needed."""
        return self._do(lambda: self.fs.open(self.path(name), "rb", block_size=PART))

    def write(self, name: str, save: Save) -> None:
        """Make an object appear, whole, with what ``save`` writes to an open file.

        If ``save`` raises an error, nothing is left of the object.
        """
        file = self._do(lambda: self.fs.open(self.path(name), "wb", block_size=PART, autocommit=False))
        try:
            _save_to(Parts(file, self._do), save)
            self._do(file.close)
            self._do(file.commit)
        except BaseException:
            with contextlib.suppress(Exception):
                file.discard()
            file.closed = True  # else its destructor uploads what is left
            raise

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects in this order."""
        for name in names:
            try:
                self._do(lambda: self.fs.rm_file(self.path(name)))
            except FileNotFoundError:
                pass

    def _do(self, request: Callable[[], Any]) -> Any:
        """Make a request. Errors that may be over later become an OSError of storage (EIO)."""
        try:
            return request()
        except FileNotFoundError as e:
            raise FileNotFoundError(errno.ENOENT, "there is no such bucket or object (%s)" % e, self.name) from e
        except Exception as e:
            words = "%s: %s" % (type(e).__name__, e)
            if "credentials" in words.lower():
                raise Error(
                    "%s: there are no credentials: give the pod an identity, or set the variables that %s reads (%s)"
                    % (self.name, type(self.fs).__module__.split(".")[0], words)
                ) from e
            if isinstance(e, PermissionError):
                raise PermissionError(
                    errno.EACCES,
                    "access denied; expected permission to list, read, write and delete objects (%s)" % e,
                    self.name,
                ) from e
            raise OSError(errno.EIO, words, self.name) from e


class _Steady:
    """A file whose writes always succeed, as far as their caller sees. ``failure`` is the first one.

    If a write fails, torch reports another error, or its writer aborts the process (1.13).
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self.failure: Optional[Exception] = None

    def write(self, data: Any) -> int:
        if self.failure is None:
            try:
                self._file.write(data)
            except Exception as e:
                self.failure = e
        return memoryview(data).nbytes

    def flush(self) -> None:
        pass  # the file is flushed when it is whole


def _save_to(file: Any, save: Save) -> None:
    """Write to an open file by ``save``. Raise the first failure of the file, when ``save`` is done."""
    steady = _Steady(file)
    save(steady)
    if steady.failure is not None:
        raise steady.failure


class Parts:
    """A file that passes large writes on in parts, so that its buffer stays small."""

    def __init__(self, file: Any, do: Callable[[Callable[[], Any]], Any]) -> None:
        self._file, self._do = file, do

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for at in range(0, len(view), PART):
            self._do(lambda: self._file.write(view[at:at + PART]))
        return len(view)


def parse_url(url: str) -> Tuple[str, str, str, Dict[str, Any]]:
    """Return the name for users, the scheme, bucket with prefix, and fsspec's options of a URL.

    The part after a question mark is for S3, as in ``--checkpoint_dir``: ``region``, ``endpoint``
    and ``use_path_style=true``. Raise Error for anything else.
    """
    expected = "expected a path, file://PATH, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX"
    parts = urlsplit(url)
    prefix = parts.path.strip("/")
    if parts.scheme not in _PACKAGES:
        raise Error("checkpoint(%r): %r is no kind of place; %s" % (url, parts.scheme + "://", expected))
    if not parts.netloc or "@" in parts.netloc or ":" in parts.netloc or parts.fragment:
        raise Error("checkpoint(%r): the bucket is missing or is none; %s" % (url, expected))
    if any(part in ("", ".", "..") for part in prefix.split("/")):
        raise Error("checkpoint(%r): the prefix is missing, or has an empty part, . or ..; %s" % (url, expected))
    root = "%s/%s" % (parts.netloc, prefix)
    options: Dict[str, Any] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if parts.scheme == "s3" and name == "region" and value:
            options.setdefault("client_kwargs", {})["region_name"] = value
        elif parts.scheme == "s3" and name == "endpoint" and value:
            options["endpoint_url"] = value
        elif parts.scheme == "s3" and (name, value) == ("use_path_style", "true"):
            options["config_kwargs"] = {"s3": {"addressing_style": "path"}}
        else:
            raise Error(
                "checkpoint(%r): ?%s=%s is not known; expected region=, endpoint= or use_path_style=true after s3://"
                % (url, name, value)
            )
    return "%s://%s" % (parts.scheme, root), parts.scheme, root, options


Place = Union[Directory, Bucket]


def open_place(path: str) -> Place:
    """Open a place by its path or URL. Nothing need be there. Raise Error for a wrong URL."""
    if path.startswith("file://"):
        path = path[len("file://"):]
        if not path.startswith("/"):
            raise Error("checkpoint('file://%s'): expected an absolute path after file://" % path)
    return Bucket(path) if "://" in path else Directory(path)

