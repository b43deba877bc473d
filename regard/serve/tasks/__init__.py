"""What can be asked of a run, by the name of its route. Another task is a file here and an entry below."""

from regard.serve.tasks.task import Task
from regard.serve.tasks.translate import TRANSLATE

TASKS: dict[str, Task] = {task.name: task for task in (TRANSLATE,)}
"""POST /v1/NAME."""
