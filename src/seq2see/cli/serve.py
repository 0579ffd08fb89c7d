"""`seq2see serve`: a service with the APIs of LibreTranslate and OpenAI."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from seq2see.cli.model_options import ON_CPU, Compute
from seq2see.cli.options import Options
from seq2see.config.search import Search
from seq2see.errors import UserError

BEAM = Search(beam=4)


def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model", metavar="NAME=DIRECTORY",
            help="A model and its name in the API; a translator is called by its languages: en-hi=runs/en-hi. Can be "
            "repeated. By default the bundled models.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0: all addresses.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0: any free port.", min=0, max=65535)] = 5000,
    key_file: Annotated[
        Path | None, typer.Option(help="API keys with their limits; required unless the address is local.", metavar="FILE")
    ] = None,
    new_key: Annotated[
        str | None, typer.Option(help="Print an entry for the key file, and the key on stderr, and exit.", metavar="NAME")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Worker processes, each with all models. By default one on a GPU, and on a CPU one per core, at most 4, as "
            "long as the files of their models together have less than 1 GiB.",
            min=1, max=64, show_default=False,
        ),
    ] = None,
    compute: Annotated[Compute, Options("device", "precision", device={"help": "cpu, cuda or mps."})] = ON_CPU,
    search: Annotated[Search, Options("beam", beam={"help": "Beam size of translations.", "max": 16})] = BEAM,
    max_characters: Annotated[int, typer.Option(help="Characters in a request.", min=1)] = 10_000,
    max_requests: Annotated[int, typer.Option(help="Requests that run or wait; more are answered 503.", min=1)] = 1000,
    timeout: Annotated[float, typer.Option(help="Seconds for a request.", min=1)] = 60.0,
    cors: Annotated[
        list[str] | None,
        typer.Option(help="An origin whose pages may use the service. Can be repeated.", metavar="ORIGIN"),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also serve the page and the API of seq2see explore, behind the key.")
    ] = False,
    access_log: Annotated[bool, typer.Option(help="Write a line of JSON per request, without its texts.")] = True,
) -> None:  # fmt: skip
    """Serve models to the clients of LibreTranslate and OpenAI.

    Example: seq2see serve --model en-hi=runs/en-hi --model chat=runs/books --host 0.0.0.0 --key-file keys.toml
    """
    from seq2see.server.service.keys import new_key as make_key

    if new_key is not None:
        key, entry = make_key(new_key)
        print(entry)
        print(f"the key of {new_key}, which is not stored anywhere: {key}", file=sys.stderr)
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
        key_file=key_file, local_only=is_local(host), beam=search.beam, max_characters=max_characters,
        max_requests=max_requests, timeout=timeout, origins=tuple(cors or ()), access_log=access_log,
    )  # fmt: skip
    models = parse_models(model or [])
    options = WorkerOptions(
        models, compute.device, compute.precision, workers or default_workers(models, compute.device)
    )
    run(options, settings, host, port, explain, lambda line: print(line, flush=True))
