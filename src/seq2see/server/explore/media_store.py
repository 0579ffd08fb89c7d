"""Pictures and sounds that the page has sent, as files by id. The least recently used are removed first."""

import threading
from collections import OrderedDict
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from weakref import finalize

from seq2see.server.explore.workers import ApiError, Limits


class MediaStore:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._folder = Path(mkdtemp(prefix="seq2see-"))
        finalize(self, rmtree, self._folder, ignore_errors=True)  # at the latest when the process ends
        self._sizes: OrderedDict[str, int] = OrderedDict()  # in bytes, by id
        self._lock = threading.Lock()

    def add(self, data: bytes) -> str:
        """Stores a file and returns its id; the same file gets the same id."""
        if not data:
            raise ApiError(422, "the file is empty", "choose a picture or sound", "body")
        id = sha256(data).hexdigest()[:24]
        with self._lock:
            (self._folder / id).write_bytes(data)
            self._sizes[id] = len(data)
            self._sizes.move_to_end(id)
            while sum(self._sizes.values()) > self.limits.max_media_bytes and len(self._sizes) > 1:
                oldest, _ = self._sizes.popitem(last=False)
                (self._folder / oldest).unlink()
        return id

    def path(self, id: str, location: str = "text") -> Path:
        with self._lock:
            if id not in self._sizes:
                raise ApiError(404, f'unknown picture or sound "{id[:40]}"', "choose the file again", location)
            self._sizes.move_to_end(id)
            return self._folder / id
