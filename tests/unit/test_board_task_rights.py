"""Whether a viewer may change a task, as its page says before the server does (E7)."""

from __future__ import annotations

import pytest

from penstock.model import Task
from penstock.web.board.task_actions import may_change
from penstock.web.board.viewer import Viewer


@pytest.mark.parametrize(
    ("viewer", "refused"),
    [
        (Viewer("root", ("admin",)), None),
        (Viewer("root", ("admin",), lane="other"), None),
        (Viewer("mine", ("submit", "read"), lane="bulk"), None),
        (Viewer("theirs", ("submit", "read"), lane="other"), "may change tasks of lane other only"),
        (Viewer("free", ("submit", "read")), "may change tasks of its own lane only"),
        (Viewer("reader", ("read",)), "may look only"),
    ],
)
def test_rights_by_scope_and_lane(viewer: Viewer, refused: str | None) -> None:
    told = may_change(viewer, Task("a", lane="bulk"))
    assert (told is None) is (refused is None)
    assert refused is None or refused in (told or "")
