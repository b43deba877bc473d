"""What can be asked of a run, by the name of its route. Those of a task's own declaration join them."""

from regard.serve.verbs.encoders import ANSWER, CLASSIFY, EMBED, FILL, TAG
from regard.serve.verbs.generate import GENERATE
from regard.serve.verbs.look import LOOK
from regard.serve.verbs.openai import CHAT, COMPLETIONS, EMBEDDINGS
from regard.serve.verbs.point import POINT
from regard.serve.verbs.translate import TRANSLATE
from regard.serve.verbs.verb import Verb

_ALL = (TRANSLATE, GENERATE, CLASSIFY, TAG, FILL, ANSWER, EMBED, POINT, LOOK, COMPLETIONS, CHAT, EMBEDDINGS)

VERBS: dict[str, Verb] = {verb.name: verb for verb in _ALL}
"""POST /v1/NAME."""
