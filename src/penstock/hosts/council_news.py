"""What followers of a question are told while it is answered, in the order in which it happens.

| event | when | beside `at` |
|---|---|---|
| stage | the first step of a stage is asked for | stage |
| step | a step is asked for, has started, is over | step, name, stage, state (queued, started, ended), host … |
| text | a piece of an answer came | step, name, text |
| again | an attempt, or the question's, is begun again: the text so far is void | step, name |
| retrieval | passages were looked for | the record's `retrieval` |
| answer | a member has ended | its entry of the record's `responses` |
| review | a reviewer has ended | its entry of the record's `ballots` |
| agreement | how far the answers agree was measured | the record's `agreement` |
| synthesis | the question has its conclusion | the record's `synthesis` |
| done, failed, cancelled | it is over | record, error |

What models write for the record alone is withheld: their thinking, the chair's trailer, the line that says how sure
a quick answer is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.config.councils import Council, Mode
from penstock.council.live import Hub
from penstock.council.plan.confidence import read_confidence
from penstock.council.plan.course import partial_record
from penstock.council.plan.steps import Question, Stage, Step, StepEnd
from penstock.council.plan.synthesis import Trailer

_TOLD = (Stage.MEMBERS, Stage.SYNTHESIS)  # whose text is told as it comes


class _Text:
    """The text of one attempt, as it may be shown."""

    def __init__(self, question: str, *, by_lines: bool) -> None:
        self._trailer = Trailer(question)
        self._by_lines = by_lines
        self._line = ""
        self.shown = False

    def feed(self, piece: str) -> str:
        return self._passed(self._trailer.feed(piece))

    def close(self) -> str:
        rest = self._passed(self._trailer.close()) + self._line
        return read_confidence(rest)[0] if self._by_lines else rest

    def _passed(self, text: str) -> str:
        if self._by_lines:  # the last one is about confidence, and which is the last is not known before
            whole, end, self._line = (self._line + text).rpartition("\n")
            text = whole + end
        self.shown = self.shown or bool(text)
        return text


class News:
    def __init__(self, hub: Hub, council: Council, question: Question, *, is_first: bool = True) -> None:
        self._hub = hub
        self._is_first = is_first  # of the question's attempts: nobody has heard anything of it
        self._council = council
        self._question = question
        self._steps: dict[str, Step] = {}
        self._stages: set[Stage] = set()
        self._texts: dict[str, _Text] = {}

    def asked(self, step: Step) -> None:
        self._steps[step.name] = step
        if step.stage not in self._stages:
            self._stages.add(step.stage)
            self._tell("stage", stage=step.stage.value)
        if not self._is_first and step.stage in _TOLD:
            self._tell("again", step=step.name, name=step.member)
        self._of_step(step, "queued")

    def started(self, name: str, host: str, attempt: int) -> None:
        step = self._steps[name]
        if (before := self._texts.pop(name, None)) is not None and before.shown:
            self._tell("again", step=name, name=step.member)
        self._of_step(step, "started", host=host, attempt=attempt)

    def text(self, name: str, piece: str) -> None:
        step = self._steps[name]
        if step.stage not in _TOLD:
            return
        if (text := self._texts.get(name)) is None:
            is_quick = self._question.mode is Mode.QUICK and step.stage is Stage.MEMBERS
            text = self._texts[name] = _Text(self._question.id, by_lines=is_quick)
        self._pass_on(step, text.feed(piece))

    def went_on(self, name: str, text: str) -> None:
        """A step that began before this attempt: what it has said so far, and nobody else will tell of."""
        if (before := self._texts.pop(name, None)) is not None and before.shown:
            self._tell("again", step=name, name=self._steps[name].member)
        if text:
            self.text(name, text)

    def ended(self, name: str, asked: Mapping[str, float], ended: Mapping[str, StepEnd], now: float) -> None:
        step, end = self._steps[name], ended[name]
        text = self._texts.pop(name, None)
        if text is not None and end.is_done:
            self._pass_on(step, text.close())
        self._of_step(step, "ended", host=end.host, outcome=end.state.value, error=end.error)
        if step.stage is not Stage.SYNTHESIS:
            self._entry(step, partial_record(self._council, self._question, asked, ended, now))

    def concluded(self, record: Mapping[str, Any]) -> None:
        if record.get("synthesis") is not None:
            self._tell("synthesis", **record["synthesis"])

    def _entry(self, step: Step, record: Mapping[str, Any]) -> None:
        """The part of the record that a step made."""
        if step.stage is Stage.MEMBERS:
            found = [one for one in record["responses"] if one["name"] == step.member]
            for one in found:
                self._tell("answer", step=step.name, **one)
        elif step.stage is Stage.REVIEW:
            for ballot in (record["review"] or {}).get("ballots", ()):
                if ballot["reviewer"] == step.member:
                    self._tell("review", step=step.name, name=step.member, **ballot)
        elif step.stage is Stage.RETRIEVE:
            self._tell("retrieval", step=step.name, **record["retrieval"])
        else:
            self._tell("agreement", step=step.name, **record["agreement"])

    def _of_step(self, step: Step, state: str, **more: Any) -> None:
        self._tell("step", step=step.name, name=step.member, stage=step.stage.value, state=state, **more)

    def _pass_on(self, step: Step, text: str) -> None:
        if text:
            self._tell("text", step=step.name, name=step.member, text=text)

    def _tell(self, event: str, **fields: Any) -> None:
        self._hub.tell(self._question.id, {"event": event, **fields})
