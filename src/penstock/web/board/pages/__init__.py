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
    Page("/", "Now", now.build),
    Page("/queue", "Queue", queue.build),
    Page("/timeline", "Timeline", timeline.build),
    Page("/diagnose", "Diagnose", diagnose.build),
    Page("/whatif", "What if", whatif.build),
    Page("/council", "Council", council.build),
    Page("/agents", "Agents", agents.build),
    Page("/setup", "Set-up", setup.build),
    Page("/tasks/{task_id}", "Task", task.build, in_menu=False),
)
