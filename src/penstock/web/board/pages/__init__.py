"""Every page of the board, in the order of its menu."""

from penstock.web.board.frame import Page
from penstock.web.board.pages import (
    agents,
    council,
    diagnose,
    now,
    queue,
    setup,
    task,
    timeline,
    whatif,
)

PAGES = (
    Page("/", "Now", now.build, key="n", css=("now.css",)),
    Page("/queue", "Queue", queue.build, key="q", css=("queue.css",)),
    Page("/timeline", "Timeline", timeline.build, key="t"),
    Page("/diagnose", "Diagnose", diagnose.build, key="d", css=("diagnose.css",)),
    Page("/whatif", "What if", whatif.build, key="w", css=("diagnose.css", "whatif.css")),
    Page("/council", "Council", council.build, key="c", css=("council.css",)),
    Page("/agents", "Agents", agents.build, key="a", css=("agents.css",)),
    Page("/setup", "Set-up", setup.build, key="s", css=("task.css",)),
    Page("/tasks/{task_id}", "Task", task.build, in_menu=False, css=("task.css",)),
)
