"""What can be asked of a run, by the name of its route. Another task is a file here and an entry below."""

from regard.serve.tasks.encoders import ANSWER, CLASSIFY, EMBED, FILL, TAG
from regard.serve.tasks.generate import GENERATE
from regard.serve.tasks.look import LOOK
from regard.serve.tasks.openai import CHAT, COMPLETIONS, EMBEDDINGS
from regard.serve.tasks.point import POINT
from regard.serve.tasks.task import Task
from regard.serve.tasks.translate import TRANSLATE

_ALL = (TRANSLATE, GENERATE, CLASSIFY, TAG, FILL, ANSWER, EMBED, POINT, LOOK, COMPLETIONS, CHAT, EMBEDDINGS)

TASKS: dict[str, Task] = {task.name: task for task in _ALL}
"""POST /v1/NAME."""
