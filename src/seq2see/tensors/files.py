"""Output files, which are written atomically, input files, which must be regular, file locks, and values as JSON."""

import math
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from seq2see.errors import UsageError, UserError

if sys.platform != "win32":
    import fcntl


def require_regular_file(path: Path) -> Path:
    """Returns the path of an input file if it can be read more than once; opening a pipe would wait for a writer."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if stat.S_ISDIR(mode):
        raise UserError(f"{path} is a directory, not a file")
    if not stat.S_ISREG(mode):
        raise UserError(f"{path} is a pipe or a device, which can be read only once: save it to a file first")
    return path


def check_output(path: Path, suffixes: Sequence[str] = ()) -> None:
    """Raises a UserError if an output file has another format or cannot be written; called before computing it."""
    if suffixes and path.suffix.lower() not in suffixes:
        raise UsageError(f'unknown file type "{path.name}": use one of {" ".join(suffixes)}')
    folder = Path(os.path.realpath(path)).parent
    if not _is_stream(path) and not os.access(folder, os.W_OK):
        raise UserError(f"cannot write {path}: {folder} is read-only, or belongs to another user")


@contextmanager
def atomic_write(path: Path | str) -> Iterator[Path]:
    """Yields a temporary path next to `path`; on exit it is synced and renamed to `path`.

    If the block raises, the temporary file is removed and `path` is unchanged. A file that is replaced keeps its mode and, if
    permitted, its owner. Of a symbolic link, the target is replaced, not the link. A pipe or a character device, such as
    /dev/null, cannot be replaced and is yielded itself.
    """
    path = Path(path)
    is_stream = _is_stream(path)
    target = path if is_stream else Path(os.path.realpath(path))
    part = target if is_stream else target.with_name(f".{target.name}.{os.getpid()}.part")
    replaced = target.stat() if target.exists() and not is_stream else None
    try:
        if replaced:
            part.touch(0o600)  # nobody else can read the new content before it has the mode of the old
        yield part
        if not is_stream:
            with part.open("rb") as file:
                os.fsync(file.fileno())
            if replaced:
                _take_over(part, replaced)
            part.replace(target)
            _sync_folder(target.parent)
    except OSError as error:
        if error.filename in (None, str(part)):  # a failed write does not name its file
            error.filename = str(path)
        raise
    finally:
        if not is_stream:
            with suppress(OSError):
                part.unlink(missing_ok=True)


def to_json(value: Any, digits: int | None = None) -> Any:
    """Converts to what JSON can hold: dataclasses become objects, tensors lists, infinities (masked scores) and NaN null.

    With `digits`, numbers are rounded to so many significant ones.
    """
    if is_dataclass(value):
        return {field.name: to_json(getattr(value, field.name), digits) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(each, digits) for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(each, digits) for each in value]
    if isinstance(value, float):
        return (float(f"{value:.{digits}g}") if digits else value) if math.isfinite(value) else None
    return to_json(value.tolist(), digits) if hasattr(value, "tolist") else value


def write_text(path: Path | str, text: str) -> None:
    """Writes a text file atomically; a full disk or a missing right is a UserError."""
    try:
        with atomic_write(path) as part:
            part.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def check_new_directory(path: Path) -> None:
    """Raises a UserError unless a directory can be written there without overwriting anything."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path} exists and is not an empty directory: choose another name")
    if not path.parent.is_dir():
        raise UserError(f"{path.parent} does not exist: create it first")


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Yields a temporary directory next to `path`, which must be new or empty; on exit it is renamed to `path`.

    If the block raises, nothing is left behind.
    """
    check_new_directory(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        temporary.mkdir()
        yield temporary
        if path.exists():
            _take_over(temporary, path.stat())
        temporary.replace(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _is_stream(path: Path) -> bool:
    """Returns whether an output is a pipe or a character device; raises a UserError if nothing can be written there."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        folder = Path(os.path.realpath(path)).parent
        if not folder.is_dir():
            raise UserError(f"cannot write {path}: there is no directory {folder}; create it first") from None
        return False
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
    if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)):
        kind = "a directory" if stat.S_ISDIR(mode) else "a block device or a socket"
        raise UserError(f"cannot write {path}: it is {kind}, not a file")
    return not stat.S_ISREG(mode)


def _take_over(path: Path, replaced: os.stat_result) -> None:
    """Gives a new file or directory the owner, if permitted, and the mode of the one that it replaces."""
    if sys.platform != "win32":
        for user, group in ((replaced.st_uid, -1), (-1, replaced.st_gid)):
            with suppress(PermissionError):
                os.chown(path, user, group)
    path.chmod(stat.S_IMODE(replaced.st_mode))


def _sync_folder(folder: Path) -> None:
    """Makes the rename survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def file_lock(path: Path, wait: bool = True, shared: bool = False) -> Iterator[int]:
    """Locks a file, which is created if missing, or a directory; yields its descriptor.

    The operating system releases the lock when the process ends. Without `wait`, raises BlockingIOError if another process
    holds it. Several can share a lock; this needs only the right to read, and the file must exist.
    """
    descriptor = os.open(path, os.O_RDONLY if shared or path.is_dir() else os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if sys.platform != "win32":  # Windows has no flock
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        yield descriptor
    finally:
        os.close(descriptor)
