"""Engines that decode in torch's place: a run's model written for one, kept beside the run, and put to work.

```python
from regard.interop.engines import use_engine

run = use_engine(regard.load("runs/demo", "cpu"), "ctranslate2")
run.translate(["I am a student."], beam=5)
```

`Run.translator` is the seam: commands, methods and routes ask it for translations, whoever searches for them.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from regard.config import JsonObject
from regard.errors import ConfigError, RunError, nearest
from regard.interop import ctranslate2, onnx
from regard.runs.checkpoint import weights_of
from regard.runs.files import alone_in, read_json, remove_directory, whole_directory, write_errors, write_json
from regard.tasks.run import Run
from regard.tasks.translator import Translator

ENGINES = ("ctranslate2", "onnx")
MANIFEST = "regard.json"
"""Beside an engine's files: which engine they are for, and of which weights they were made."""


def check_engine(name: str) -> None:
    """Refuse a name that is no engine's."""
    if name not in ENGINES:
        raise ConfigError(f"engine={name} must be torch or one of {', '.join(ENGINES)}{nearest(name, ENGINES)}")


def export_run(run: Run, engine: str, out: str | Path, quantization: str = "float32") -> Path:
    """The run's model as `engine` reads it, in a new directory; what the engine cannot express is refused by name."""
    out = Path(out)
    check_engine(engine)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(f"{out} is not empty: choose another directory")
    _write(run, engine, out, quantization)
    return out


def _write(run: Run, engine: str, out: Path, quantization: str) -> None:
    if engine == "onnx" and quantization != "float32":
        raise ConfigError(f"quantization={quantization} is for CTranslate2; ONNX graphs are float32")
    with whole_directory(out) as aside:
        if engine == "ctranslate2":
            ctranslate2.write_model(run, aside, quantization)
        else:
            onnx.write_model(run, aside)
        write_json(aside / MANIFEST, manifest(run, engine, quantization))


def manifest(run: Run, engine: str, quantization: str) -> JsonObject:
    return {
        "engine": engine,
        "quantization": quantization,
        "model": run.config.model["name"],
        "digest": digest(run),
    }


def digest(run: Run) -> str:
    """A name for exactly this model: its settings, its vocabularies and its weights."""
    found = hashlib.sha256(json.dumps(run.config.model, sort_keys=True, default=list).encode())
    found.update(run.vocabularies.digest().encode())
    for name, weight in sorted(weights_of(run.model).items()):
        found.update(name.encode())
        found.update(weight.detach().float().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


def use_engine(
    run: Run, engine: str, files: str | Path | None = None, tell: Callable[[str], object] = lambda said: None
) -> Run:
    """The run, with `engine` in torch's place wherever it translates; everything else it does as before.

    `files` is a directory that `export_run` wrote; without it one is made in the run's `cache`, and found there the
    next time. `torch` leaves the run as it is.
    """
    if engine == "torch":
        if files is not None:
            raise ConfigError(f"engine_files={files} needs an engine: {' or '.join(ENGINES)}")
        return run
    check_engine(engine)
    if "translator" not in run.task.parts:
        raise ConfigError(f"engine={engine} is for runs that translate; {run.directory} is a run for {run.task.name}")
    directory = _kept(run, engine, tell) if files is None else _given(run, engine, Path(files))
    run.put("translator", translator_with(run, engine, directory))
    return run


def translator_with(run: Run, engine: str, directory: Path) -> Translator:
    """Sentences in, translations out, by an engine with these files."""
    if engine == "ctranslate2":
        return ctranslate2.CTranslate2Translator(run, directory)
    longest = run.config.model_config().max_len
    return Translator(onnx.OnnxTransformer(run, directory), run.vocabularies, run.config.decode, longest)


def _kept(run: Run, engine: str, tell: Callable[[str], object]) -> Path:
    """The engine's files beside the run, made if they are not there; those of other weights go."""
    folder = run.directory / "cache" / "engines"
    name = digest(run)[:16]
    directory = folder / f"{engine}-{name}"
    if not (directory / MANIFEST).is_file():
        with write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with alone_in(folder):
            tell(f"writing the model for {engine} to {directory}")
            _write(run, engine, directory, "float32")
            for other in folder.glob(f"{engine}-*"):
                if other != directory:
                    remove_directory(other)
    return directory


def _given(run: Run, engine: str, directory: Path) -> Path:
    if not directory.is_dir():
        raise RunError(f"no such directory: {directory}")
    said = read_json(directory / MANIFEST)
    if said.get("engine") != engine:
        raise RunError(f"{directory} has files for {said.get('engine')}, not for {engine}")
    if said.get("digest") != digest(run):
        raise RunError(f"{directory} was made of another model than that of {run.directory}: export it again")
    return directory
