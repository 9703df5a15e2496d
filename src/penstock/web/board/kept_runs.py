"""Recordings that were read, kept while nothing has happened to them: moving a slider must not read a run again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.client import Client
from penstock.diagnosis.diagnosed import Diagnosis
from penstock.diagnosis.recording import Recording
from penstock.diagnosis.timeline.bars import timeline_of
from penstock.diagnosis.timeline.page import page_data
from penstock.diagnosis.whatif.figures import Point
from penstock.lifecycle import ENDED
from penstock.whatif import Asked, Plays

_MOST_TASKS = 200_000  # of all that are kept


@dataclass(slots=True)
class KeptRun:
    recording: Recording
    at_event: int  # as it was then
    plays: dict[bool, Plays] = field(default_factory=dict)  # by whether attempts take what is usual
    diagnosis: Diagnosis | None = None
    picture: dict[str, Any] | None = None
    points: dict[tuple[Any, ...], Point] = field(default_factory=dict)  # of curves

    @property
    def is_over(self) -> bool:
        return all(record.state in ENDED for record in self.recording.tasks)

    def diagnosed(self, told: Callable[[str], None]) -> Diagnosis:
        if self.diagnosis is None:
            self.diagnosis = Diagnosis.of(self.recording, told)
        return self.diagnosis

    def pictured(self) -> dict[str, Any]:
        """Its timeline, for the scripts that draw it."""
        if self.picture is None:
            self.picture = page_data(timeline_of(self.recording))
        return self.picture

    def playing(self, typical: bool, watch: Callable[[], None]) -> Plays:
        if typical not in self.plays:
            self.plays[typical] = Plays(self.recording, typical=typical, watch=watch)
        return self.plays[typical]

    def point(self, typical: bool, asked: Asked, key: str, value: str, watch: Callable[[], None]) -> Point:
        """What a value of a key would bring, on top of what else is asked."""
        place = (typical, frozenset(asked.settings.items()), frozenset(asked.unset), key, value)
        if place not in self.points:
            (self.points[place],) = self.playing(typical, watch).curve(asked, key, [value], watch)
        return self.points[place]


class KeptRuns:
    def __init__(self) -> None:
        self._kept: OrderedDict[str, KeptRun] = OrderedDict()  # the latest used last

    async def get(self, client: Client, run: str, at_event: int | None = None) -> KeptRun:
        """As it is; or as it was at an event, if that is still kept: a page goes on with what it began with."""
        kept = self._kept.get(run)
        if kept is None or (kept.at_event != at_event and not await _is_still(client, run, kept)):
            event = await client.last_event()
            kept = KeptRun(await client.recording(run), event)
        self._kept[run] = kept
        self._kept.move_to_end(run)
        while len(self._kept) > 1 and self._tasks() > _MOST_TASKS:
            self._kept.popitem(last=False)
        return kept

    def _tasks(self) -> int:
        return sum(len(kept.recording.tasks) for kept in self._kept.values())


async def _is_still(client: Client, run: str, kept: KeptRun) -> bool:
    """Whether nothing has happened to it since it was read."""
    if await client.last_event() == kept.at_event:
        return True
    return kept.is_over and await client.is_settled(run, kept.at_event)
