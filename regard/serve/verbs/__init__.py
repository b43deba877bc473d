"""What can be asked of a run, by the name of its route. Those that other packages declare join them."""

from regard.serve.verbs.declared import declared
from regard.serve.verbs.encoders import ANSWER, CLASSIFY, EMBED, FILL, TAG
from regard.serve.verbs.generate import GENERATE
from regard.serve.verbs.look import LOOK
from regard.serve.verbs.openai import CHAT, COMPLETIONS, EMBEDDINGS
from regard.serve.verbs.point import POINT
from regard.serve.verbs.translate import TRANSLATE
from regard.serve.verbs.verb import Verb
from regard.tasks.verbs import VERBS as ADDED

_ALL = (TRANSLATE, GENERATE, CLASSIFY, TAG, FILL, ANSWER, EMBED, POINT, LOOK, COMPLETIONS, CHAT, EMBEDDINGS)

VERBS: dict[str, Verb] = {
    **{verb.name: verb for verb in _ALL},
    **{name: declared(ADDED[name]) for name in ADDED},
}
"""POST /v1/NAME."""
