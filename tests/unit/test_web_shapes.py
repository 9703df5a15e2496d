"""What the HTTP API's schema says of a task's id is what the checks say."""

from __future__ import annotations

import re

import pytest

from penstock.config.keys import TASK_ID
from penstock.web.shapes import TASKS_BODY


@pytest.mark.parametrize(
    "id",
    ["heat", "nightly:heat", "a:b:c", ":heat", "nightly:", "a/b", "x" * 128, "x" * 129, "r:" + "x" * 128],
)
def test_the_schema_takes_the_ids_that_can_be_submitted(id: str) -> None:
    one, _ = TASKS_BODY["content"]["application/json"]["schema"]["oneOf"]
    told = one["properties"]["id"]
    assert told in one["properties"]["after"]["oneOf"]
    assert bool(re.search(told["pattern"], id)) == bool(TASK_ID.fullmatch(id))
