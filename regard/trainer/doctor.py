"""What can be said of a run afterwards: how far it came, which weights it has, and what its guard rails said."""

from dataclasses import dataclass
from pathlib import Path

from regard.data.inspection.findings import counted
from regard.errors import RunError
from regard.runs.files import MODEL
from regard.runs.log import NOTE, read_log
from regard.tasks.config import RunConfig
from regard.tasks.planning import PLAN
from regard.tasks.run import load_config
from regard.training.guard_rails import Caution, GuardRails
from regard.training.selection import is_better, reached


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """How a run stands, in lines, and what should be done about it."""

    facts: tuple[str, ...]
    notes: tuple[str, ...]
    """What was said of its data before it was trained: what may be wrong with it, what was left out or cut."""
    cautions: tuple[Caution, ...]


def diagnose(directory: str | Path) -> Diagnosis:
    """Read a run's log again, and say what training said, or would have said."""
    directory = Path(directory)
    config = load_config(directory)
    path = directory / "log.jsonl"
    if not path.exists():
        raise RunError(
            f"{directory} has no log.jsonl: it was not trained here, so there is nothing to say about its training"
        )
    records = read_log(path)
    rails = GuardRails(config.train)
    found = [one for record in records for one in rails.record(record["kind"], record["step"], record)]
    notes = [record["text"].removeprefix("note: ") for record in records if record["kind"] == NOTE]
    return Diagnosis(tuple(_facts(directory, config, records)), tuple(notes), tuple(found))


def _facts(directory: Path, config: RunConfig, records: list) -> list[str]:
    options = config.train
    last = max((record["step"] for record in records), default=0)
    facts = [f"{last:,} of {options.steps:,} updates are logged"]
    if last < options.steps and not options.patience:
        facts.append(f"it is not finished: regard train --resume {directory}")
    if not (directory / MODEL).exists():
        facts.append(f"it has no {MODEL} yet")
    validations = [record for record in records if record["kind"] == "validation"]
    if validations:
        name = options.select_by if options.select_by in validations[-1] else "loss"
        best, highest = validations[0], reached(name, validations[0])
        for one in validations[1:]:
            best = one if is_better(name, one, highest) else best
            highest = min(highest, reached(name, one))
        facts.append(
            f"the best of {counted(len(validations), 'validation')} by {name} is that of step {best['step']:,}: "
            f"{abs(reached(name, best)):.4g}; the last has {abs(reached(name, validations[-1])):.4g}"
        )
        if best is not validations[-1] and options.choose == "last" and not options.average_last:
            facts.append("it kept the last weights: train.choose=best would have kept those")
    else:
        facts.append("it was not validated: give --valid, or data.held_out")
    if (directory / PLAN).exists():
        facts.append(f"how it was planned is in {directory / PLAN}")
    return facts
