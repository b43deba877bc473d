"""`regard serve`: runs behind HTTP."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import ENGINE, ENGINE_FILES, NO_VERIFY, PRECISION, number_of_threads, precision_for, with_engine
from regard.digests import verifying

if TYPE_CHECKING:
    from regard.tasks.run import Run


def serve(
    run: Annotated[list[Path] | None, typer.Argument(help="Run directories.", metavar="RUN")] = None,
    named: Annotated[
        list[str] | None,
        typer.Option("--run", help="A run under another name than its directory's.", metavar="NAME=DIRECTORY"),
    ] = None,
    averaged: Annotated[
        list[str] | None,
        typer.Option(
            "--with", help="Average the run of this name with another; may be repeated.", metavar="NAME=DIRECTORY"
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; 0.0.0.0 is all of this machine's.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 is any that is free.")] = 8080,
    api_key_file: Annotated[
        Path | None,
        typer.Option(help="Keys, one per line, of which a request must have one; or REGARD_API_KEY.", metavar="FILE"),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(help="Let pages of this origin ask from a browser; may be repeated.", metavar="ORIGIN"),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Answer to this host name too; may be repeated.", metavar="NAME"),
    ] = None,
    max_body: Annotated[
        int | None,
        typer.Option(
            help="Most bytes of a request; unless given 1,048,576, where images are captioned 16 and where sounds are "
            "transcribed 26 times as many.",
            metavar="BYTES",
        ),
    ] = None,
    max_texts: Annotated[int, typer.Option(help="Most texts of a request.")] = 256,
    max_characters: Annotated[int, typer.Option(help="Most characters of a request.")] = 50_000,
    max_tokens: Annotated[int, typer.Option(help="Most tokens to write for a text.")] = 1024,
    max_beam: Annotated[int, typer.Option(help="Widest beam, and most samples.")] = 16,
    budget: Annotated[int, typer.Option(help="Most tokens written for a request: texts x beam x longest output.")] = 1
    << 20,
    queue: Annotated[int, typer.Option(help="Requests that may wait for a model.")] = 256,
    batch_tokens: Annotated[int, typer.Option(help="Most tokens read together.")] = 4096,
    batch_wait: Annotated[float, typer.Option(help="Most seconds to wait for others to go with.")] = 0.005,
    timeout: Annotated[float, typer.Option(help="Seconds after which a request is given up.")] = 60.0,
    grace: Annotated[float, typer.Option(help="Seconds to finish in when told to stop.")] = 20.0,
    max_connections: Annotated[
        int, typer.Option(help="Most connections at a time; fewer where the process may open fewer files.")
    ] = 2000,
    header_timeout: Annotated[float, typer.Option(help="Seconds for the head of a request to come in.")] = 10.0,
    idle_timeout: Annotated[float, typer.Option(help="Seconds a connection may rest between requests.")] = 30.0,
    engine: ENGINE = "torch",
    engine_files: ENGINE_FILES = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    precision: PRECISION = "auto",
    threads: Annotated[
        str,
        typer.Option(help="CPU threads of a model: a number, or auto: one fewer than there are.", metavar="NUMBER"),
    ] = "auto",
    no_verify: NO_VERIFY = False,
) -> None:
    """Serve runs over HTTP: JSON in, JSON out, many requests together. SIGTERM or Ctrl-C ends it.

    \b
    Examples:
      regard serve runs/demo
      regard serve runs/demo runs/films --port 9000
      regard serve --run en-fr=runs/demo --host 0.0.0.0 --api-key-file keys.txt
    """
    from regard.serve import need_packages

    need_packages()
    from regard.serve.limits import Limits
    from regard.serve.server import is_local, log_to_stderr
    from regard.serve.server import serve as start

    limits = Limits(
        body=max_body,
        texts=max_texts,
        characters=max_characters,
        tokens=max_tokens,
        beam=max_beam,
        queue=queue,
        batch_tokens=batch_tokens,
        batch_wait=batch_wait,
        timeout=timeout,
        grace=grace,
        budget=budget,
        connections=max_connections,
        header_timeout=header_timeout,
        idle_timeout=idle_timeout,
    )
    keys, count = _keys(api_key_file), number_of_threads(threads)
    precision = precision_for(engine, precision)
    if averaged and engine != "torch":
        from regard.errors import ConfigError

        raise ConfigError(f"--with does not apply to --engine {engine}: several runs are searched together by torch")
    with verifying(not no_verify):
        runs = _averaged(_runs(run or [], named or []), averaged or [], device, precision)
    if not keys and not is_local(host):
        print(f"regard: anyone who reaches {host} may use this server: give it --api-key-file", file=sys.stderr)

    def ready(url: str) -> None:
        log_to_stderr()
        print(f"serving {', '.join(runs)} at {url}", flush=True)

    with verifying(not no_verify):
        start(
            _with_engine(runs, engine, engine_files, device),
            host=host,
            port=port,
            limits=limits,
            api_keys=keys,
            allow_origins=allow_origin or (),
            allow_hosts=allow_host or (),
            device=device,
            precision=precision,
            threads=count,
            ready=ready,
        )


def _averaged(runs: dict[str, Path], averaged: list[str], device: str, precision: str) -> "dict[str, Path | Run]":
    """The runs, those that --with names as ensembles."""
    from regard.cli.verbs import loaded_run
    from regard.errors import ConfigError, nearest
    from regard.tasks.ensemble import ensemble

    members: dict[str, list[Path]] = {}
    for one in averaged:
        name, equals, directory = one.partition("=")
        if not equals or not directory:
            raise ConfigError(f"--with={one} must be NAME=DIRECTORY")
        if name not in runs:
            raise ConfigError(f"--with={one}: no run is called '{name}'{nearest(name, runs)}")
        members.setdefault(name, [runs[name]]).append(Path(directory))
    return {
        **runs,
        **{
            name: ensemble([loaded_run(one, device, precision) for one in several]) for name, several in members.items()
        },
    }


def _runs(directories: list[Path], named: list[str]) -> dict[str, Path]:
    """Runs by name."""
    from regard.errors import ConfigError
    from regard.serve.models import named as by_name

    found: dict[str, Path] = dict(by_name(directories)) if directories else {}  # type: ignore[arg-type]
    for one in named:
        name, equals, directory = one.partition("=")
        if not equals or not name or not directory:
            raise ConfigError(f"--run={one} must be NAME=DIRECTORY")
        if name in found:
            raise ConfigError(f"two runs are called '{name}': name them, as in name=directory")
        found[name] = Path(directory)
    by_name(found)
    return found


def _with_engine(
    runs: "Mapping[str, Path | Run]", engine: str, files: Path | None, device: str
) -> "Mapping[str, Path | Run]":
    """The runs that translate, loaded, with another engine in torch's place if one is asked for."""
    if engine == "torch" and files is None:
        return runs
    from regard import load
    from regard.errors import ConfigError

    if files is not None and len(runs) > 1:
        raise ConfigError(f"--engine-files={files} is of one model, and {len(runs)} runs are served")
    return {
        name: with_engine(load(run, device) if isinstance(run, Path) else run, engine, files)
        for name, run in runs.items()
    }


def _keys(file: Path | None) -> list[str]:
    """Keys from the file and the environment, never from the command line, where others could read them."""
    from regard.errors import ConfigError

    lines: list[str] = []
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {file}: {getattr(error, 'strerror', None) or error}") from None
        if not any(line.strip() for line in lines):
            raise ConfigError(f"{file} has no key")
    keys = [key.strip() for key in (*lines, os.environ.get("REGARD_API_KEY", "")) if key.strip()]
    for key in keys:
        if not key.isascii() or not key.isprintable() or " " in key:
            raise ConfigError("a key must be printable ASCII without spaces")
    return keys
