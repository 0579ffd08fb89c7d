"""`seq2see serve`: a service with the APIs of LibreTranslate and OpenAI."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from seq2see.cli.model_options import ON_CPU, Compute
from seq2see.cli.options import Options
from seq2see.config import option
from seq2see.config.search import Search
from seq2see.errors import UserError

BEAM = Search(beam=4)


@dataclass(frozen=True)
class Access:
    """Where the service listens, and to whom."""

    host: str = option("127.0.0.1", "Address to listen at; 0.0.0.0: all addresses.")
    port: int = option(5000, "Port; 0: any free port.", min=0, max=65535)
    key_file: Path | None = option(
        None, "API keys with their limits; required unless the address is local.", metavar="FILE"
    )
    new_key: str | None = option(
        None, "Print an entry for the key file, and the key on stderr, and exit.", metavar="NAME"
    )


@dataclass(frozen=True)
class Limits:
    """What a request may ask for."""

    max_characters: int = option(10_000, "Characters in a request.", min=1)
    max_requests: int = option(1000, "Requests that run or wait; more are answered 503.", min=1)
    timeout: float = option(60.0, "Seconds for a request.", min=1)


def serve(
    model: list[str] | None = option(
        None,
        "A model and its name in the API; a translator is called by its languages: en-hi=runs/en-hi. Can be "
        "repeated. By default the bundled models.",
        metavar="NAME=DIRECTORY",
    ),
    *,
    access: Access,
    workers: int | None = option(
        None,
        "Worker processes, each with all models. By default one on a GPU, and on a CPU one per core, at most 4, as "
        "long as the files of their models together have less than 1 GiB.",
        min=1,
        max=64,
        show_default=False,
    ),
    compute: Annotated[Compute, Options("device", "precision", device={"help": "cpu, cuda or mps."})] = ON_CPU,
    search: Annotated[Search, Options("beam", beam={"help": "Beam size of translations.", "max": 16})] = BEAM,
    limits: Limits,
    cors: list[str] | None = option(
        None, "An origin whose pages may use the service. Can be repeated.", metavar="ORIGIN"
    ),
    explain: bool = option(False, "Also serve the page and the API of seq2see explore, behind the key."),
    access_log: bool = option(True, "Write a line of JSON per request, without its texts."),
) -> None:
    """Serve models to the clients of LibreTranslate and OpenAI.

    Example: seq2see serve --model en-hi=runs/en-hi --model chat=runs/books --host 0.0.0.0 --key-file keys.toml
    """
    from seq2see.server.service.keys import new_key as make_key

    if access.new_key is not None:
        key, entry = make_key(access.new_key)
        print(entry)
        print(f"the key of {access.new_key}, which is not stored anywhere: {key}", file=sys.stderr)
        return
    try:
        from seq2see.server.service.server import default_workers, parse_models
        from seq2see.server.service.server import serve as run
        from seq2see.server.service.service import Settings
        from seq2see.server.service.supervisor import WorkerOptions
    except ModuleNotFoundError as error:
        raise UserError(f'{error.name} is not installed: run pip install "seq2see[serve]"') from error
    from seq2see.server.service.server import is_local

    settings = Settings(
        key_file=access.key_file,
        local_only=is_local(access.host),
        beam=search.beam,
        origins=tuple(cors or ()),
        access_log=access_log,
        **vars(limits),
    )
    models = parse_models(model or [])
    options = WorkerOptions(
        models, compute.device, compute.precision, workers or default_workers(models, compute.device)
    )
    run(options, settings, access.host, access.port, explain, lambda line: print(line, flush=True))
