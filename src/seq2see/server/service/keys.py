"""API keys: who a request comes from, and its limits.

The key file holds SHA-256 hashes, so that reading it does not reveal the keys. A key is 32 random bytes, which cannot be
guessed, so the hash need not be slow.

    [[key]]
    name = "acme"
    sha256 = "9f86d0…"
    requests_per_minute = 600
    max_characters = 20000

    [key.glossary.hi]
    "river" = "नदी"
"""

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field, fields
from pathlib import Path

from seq2see.config.toml import parse_toml, to_toml
from seq2see.errors import UserError, did_you_mean

MAX_CLIENTS = 10_000  # whose recent requests are counted


@dataclass(frozen=True)
class Client:
    """Who sends a request: a key's owner or, without keys, an address."""

    name: str
    requests_per_minute: int = 0  # 0: no limit
    max_characters: int = 0  # in a request; 0: the server's limit
    glossary: dict[str, dict[str, str]] = field(default_factory=dict)  # terms and translations, by target language


@dataclass(frozen=True)
class Keys:
    clients: dict[bytes, Client]  # by hash

    def find(self, key: str) -> Client | None:
        """Returns the owner of a key. Compares with every hash, in constant time each."""
        digest = hashlib.sha256(key.encode(errors="surrogatepass")).digest()
        found = None
        for known, client in self.clients.items():
            if hmac.compare_digest(known, digest):
                found = client
        return found


def read_keys(path: Path) -> Keys:
    try:
        tables = parse_toml(path.read_text(encoding="utf-8")).get("key", [])
    except (OSError, ValueError) as error:  # also a number of thousands of digits
        raise UserError(f"cannot read the key file {path}: {error}") from error
    clients: dict[bytes, Client] = {}
    known = {each.name: each.type for each in fields(Client)}
    for number, table in enumerate(tables if isinstance(tables, list) else [tables], 1):
        where = f"{path}, key {number}"
        for name in table:
            if name != "sha256" and name not in known:
                raise UserError(f'{where}: unknown field "{name}": {did_you_mean(name, [*known, "sha256"])}')
        try:
            digest = bytes.fromhex(table["sha256"])
            client = Client(**{name: value for name, value in table.items() if name != "sha256"})
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{where} needs a name and a sha256 of 64 hexadecimal digits: {error}") from error
        for name in ("requests_per_minute", "max_characters"):
            if type(getattr(client, name)) is not int or getattr(client, name) < 0:
                raise UserError(f"{where}: {name} = {getattr(client, name)!r} is not a number of at least 0")
        if len(digest) != 32 or not isinstance(client.name, str) or digest in clients:
            raise UserError(f"{where} needs a name and a sha256 of 64 hexadecimal digits that no other key has")
        _check_glossary(client.glossary, where)
        clients[digest] = client
    if not clients:
        raise UserError(f'{path} has no keys: add one with "seq2see serve --new-key NAME >> {path}"')
    return Keys(clients)


def _check_glossary(glossary: object, where: str) -> None:
    if not isinstance(glossary, dict):
        raise UserError(f"{where}: glossary = {glossary!r} is not a table: write [key.glossary.LANGUAGE]")
    for language, terms in glossary.items():
        if isinstance(terms, str):
            raise UserError(
                f'{where}: the glossary has no target language: write [key.glossary.hi] and below it "{language}" = "{terms}"'
            )
        if not isinstance(terms, dict) or not all(
            isinstance(each, str) and each.strip() for pair in terms.items() for each in pair
        ):
            raise UserError(f"{where}: glossary.{language} is not a table of terms and translations")


def new_key(name: str) -> tuple[str, str]:
    """Returns a new key and its entry for the key file."""
    key = secrets.token_urlsafe(32)
    digest = hashlib.sha256(key.encode()).hexdigest()
    return key, f'[[key]]\nname = {to_toml(name)}\nsha256 = "{digest}"\nrequests_per_minute = 0\nmax_characters = 0\n'


class RateLimiter:
    """Counts requests per client: each may send its requests per minute at once, and then one whenever its share of a
    minute has passed (a token bucket)."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # requests left, and when that was

    def wait(self, client: Client) -> float:
        """Counts a request; returns 0, or the seconds until the next one is allowed."""
        limit = client.requests_per_minute
        if not limit:
            return 0.0
        now = time.monotonic()
        left, then = self._buckets.pop(client.name, (float(limit), now))
        left = min(float(limit), left + (now - then) * limit / 60)
        allowed = left >= 1
        self._buckets[client.name] = (left - allowed, now)
        if len(self._buckets) > MAX_CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - left) * 60 / limit
