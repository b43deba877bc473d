"""Everything that can be asked of a trained run. Other packages add their own as entry points `regard.verbs`."""

from regard.plugins import Registry
from regard.tasks.verbs.spec import Asked, Between, Cost, RequestLimits, Verb, ask, option

VERBS: Registry[Verb] = Registry(
    "regard.verbs",
    "verb",
    {
        "translate": "regard.tasks.verbs.translate:TRANSLATE",
        "generate": "regard.tasks.verbs.generate:GENERATE",
        "score": "regard.tasks.verbs.score:SCORE",
        "classify": "regard.tasks.verbs.encoders:CLASSIFY",
        "tag": "regard.tasks.verbs.encoders:TAG",
        "fill": "regard.tasks.verbs.encoders:FILL",
        "follows": "regard.tasks.verbs.encoders:FOLLOWS",
        "answer": "regard.tasks.verbs.encoders:ANSWER",
        "embed": "regard.tasks.verbs.encoders:EMBED",
        "point": "regard.tasks.verbs.point:POINT",
        "caption": "regard.tasks.verbs.caption:CAPTION",
        "summarize": "regard.tasks.verbs.summarize:SUMMARIZE",
        "combine": "regard.tasks.verbs.combine:COMBINE",
        "transcribe": "regard.tasks.verbs.transcribe:TRANSCRIBE",
        "parse": "regard.tasks.verbs.parse:PARSE",
    },
)

__all__ = ["VERBS", "Asked", "Between", "Cost", "RequestLimits", "Verb", "ask", "option"]
