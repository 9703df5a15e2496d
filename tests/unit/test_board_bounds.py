"""What the board keeps and reads has bounds, whatever it is asked."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.config import Config
from penstock.model import Plant
from penstock.web.board import frame
from penstock.web.board.address import whole
from penstock.web.board.analysts import Analysts
from penstock.web.board.task_data import pieces_of


def test_numbers_of_addresses_are_bounded() -> None:
    assert (whole("0"), whole("17"), whole("9" * 18)) == (0, 17, 10**18 - 1)
    for text in ("", "-1", "1.5", "x", "²", "٣", "9" * 19, "9" * 6000):
        assert whole(text) is None, text


class Fetched:
    """A page, as NiceGUI's client is one."""

    def __init__(self, created: float, *, connected: bool = False, leaving: bool = False) -> None:
        self.created = created
        self.has_socket_connection = connected
        self._delete_tasks = {"x": None} if leaving else {}
        self.is_deleted = False

    def delete(self) -> None:
        self.is_deleted = True


def test_of_pages_that_no_browser_connects_to_only_the_newest_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = frame._MOST_UNSEEN + 10
    unseen = [Fetched(float(at)) for at in reversed(range(count))]
    seen = [Fetched(0.0, connected=True), Fetched(0.0, leaving=True)]
    newest: Any = Fetched(0.5)
    everybody = [newest, *seen, *unseen]
    instances = {str(number): one for number, one in enumerate(everybody)}
    monkeypatch.setattr(frame, "Client", SimpleNamespace(instances=instances))
    frame.drop_unseen(newest)
    assert sorted(one.created for one in everybody if one.is_deleted) == [float(at) for at in range(10)]
    assert not any(one.is_deleted for one in seen)


def test_a_log_is_sent_in_pieces() -> None:
    data = b"line\n" * 200_000
    file = io.BytesIO(data)
    pieces = list(pieces_of(file))
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) <= 262_144
    assert file.closed


async def test_a_question_that_cannot_be_sent_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    class Child:
        def __init__(self) -> None:
            self.open: dict[int, Any] = {}

        def tell(self, message: dict[str, Any]) -> None:
            if "do" in message:
                raise OverflowError("too large")

    child = Child()
    analysts = Analysts(Config(Plant(hosts=())))

    async def there() -> Child:
        return child

    monkeypatch.setattr(analysts, "_there", there)
    with pytest.raises(OverflowError):
        await anext(aiter(analysts.ask("whatif", page="p", at_event=10**30)))
    assert child.open == {}
    assert analysts._latest == {}
