"""What is said of each result as JSON: the same objects on the command line with `--json` and from a server."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from regard.tasks.answering import Answer
    from regard.tasks.classification import Choice
    from regard.tasks.encoder import Filling
    from regard.tasks.generator import Generated, Prompt
    from regard.tasks.pointer import Answer as Pointed
    from regard.tasks.tagging import Tag
    from regard.tasks.translator import Translation

Record = dict[str, Any]


def translated(line: int, source: str, found: "Sequence[Translation]") -> Record:
    """One sentence, the `line`-th, with its translations, best first."""
    names = ("text", "score", "log_prob", "pieces", "finished")
    results = [{name: getattr(one, name) for name in names} for one in found]
    return {"line": line, "source": source, "translations": results}


def generated(prompt: "Prompt", output: "Generated") -> Record:
    """One text that follows a prompt; of a conversation, the last question."""
    asked = prompt if isinstance(prompt, str) else prompt.messages[-1].text
    return {"prompt": asked, "text": output.text, "ended": output.ended}


def classified(shown: str, choices: "Sequence[Choice]") -> Record:
    """One input, as it is shown, with its classes."""
    classes = [{"label": choice.label, "probability": choice.probability} for choice in choices]
    return {"input": shown, "classes": classes}


def tagged(text: Any, tags: "Sequence[Tag]") -> Record:
    """One sentence with its words."""
    words = [{"word": one.word, "tag": one.tag, "probability": one.probability} for one in tags]
    return {"text": text, "words": words}


def filled(text: str, found: "Sequence[Sequence[Filling]]") -> Record:
    """One text with what might stand in each of its hidden places."""
    masks = [[{"token": c.token, "probability": c.probability, "text": c.text} for c in mask] for mask in found]
    return {"text": text, "masks": masks}


def answered(one: "Answer") -> Record:
    """One answer, and where in the text it stands."""
    return {"answer": one.text, "start": one.start, "end": one.end, "score": one.score}


def embedded(text: str, vector: "np.ndarray") -> Record:
    """One text as a vector."""
    return {"text": text, "vector": vector.tolist()}


def pointed(answer: "Pointed") -> Record:
    """The positions that answer one problem."""
    return {"order": answer.order, "score": answer.score, "log_prob": answer.log_prob}
