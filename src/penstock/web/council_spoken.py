"""What of a question's events a chat is told: how far it is as reasoning, the chair's words as the answer.

The chair's words go out as they come. What was sent cannot be taken back: a chair that breaks off is told in the
answer, and the next one goes on below. What is said in the end is always the text of the record,
with what it lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from penstock.config.councils import Council, Member
from penstock.council.plan.steps import Stage
from penstock.web.council_notes import documents, notes

_MOST_WHY = 300


class Delta(NamedTuple):
    kind: Literal["reasoning_content", "content"]
    text: str


class Spoken:
    """Hears the events of one question, and says what a chat is told of each."""

    def __init__(self, council: Council) -> None:
        self._council = council
        self._told: set[str] = set()  # an attempt that is made again tells what it knows again
        self._step = ""  # whose words are the answer, at the moment
        self._name = ""
        self._said = ""  # of them, so far
        self._any = False  # there is some answer on the client's side

    def heard(self, event: Mapping[str, Any]) -> list[Delta]:
        kind = event.get("event")
        step = str(event.get("step") or "")
        if step.startswith(Stage.SYNTHESIS):
            if kind == "text":
                return self._words(step, str(event.get("name") or ""), str(event.get("text") or ""))
            if kind == "again":
                return self._begins_again(step)
        if kind in ("stage", "retrieval", "answer", "review", "agreement"):
            return self._progress(_line(self._council, str(kind), event))
        return []

    def closing(self, record: Mapping[str, Any]) -> list[Delta]:
        """What is missing to the answer as the record has it, and what the answer itself lacks."""
        lacking = notes(record)
        return [*self._rest(record), *([Delta("content", lacking)] if lacking else [])]

    def _rest(self, record: Mapping[str, Any]) -> list[Delta]:
        synthesis = record.get("synthesis")
        synthesis = synthesis if isinstance(synthesis, Mapping) else {}
        text = str(synthesis.get("text") or "")
        if self._said.strip() == text:
            return []
        if text.startswith(self._said) and (self._said or not self._any):
            return [Delta("content", text[len(self._said) :])]
        by = synthesis.get("by")
        method = "the answers follow as a list"
        if synthesis.get("method") != "list":
            method = f"the answer of {by} follows"
        why = "" if not self._name else f"{self._name} broke off; "
        return [Delta("content", f"\n\n[{why}{method}]\n\n{text}")]

    def _words(self, step: str, name: str, text: str) -> list[Delta]:
        deltas = []
        if step != self._step:
            if self._any:
                deltas.append(
                    Delta("content", f"\n\n[{self._name or 'the chair'} broke off; {name} goes on]\n\n")
                )
            self._step, self._name, self._said = step, name, ""
        if text:
            self._said += text
            self._any = True
            deltas.append(Delta("content", text))
        return deltas

    def _begins_again(self, step: str) -> list[Delta]:
        if step != self._step:
            return []
        had_said, self._said = self._said, ""
        if not had_said:
            return []
        return [Delta("content", f"\n\n[{self._name or 'the chair'} broke off, and begins again]\n\n")]

    def _progress(self, line: str) -> list[Delta]:
        if not line or line in self._told or self._any:  # who shows an answer has done with reasoning
            return []
        self._told.add(line)
        return [Delta("reasoning_content", f"{line}\n")]


def _line(council: Council, kind: str, event: Mapping[str, Any]) -> str:
    if kind == "stage":
        return _stage(council, str(event.get("stage") or ""))
    if kind == "retrieval":
        return documents(event)
    if kind == "answer":
        return _answer(council, event)
    if kind == "review":
        return _review(council, event)
    return _agreement(event)


def _stage(council: Council, stage: str) -> str:
    lines: dict[str, str] = {
        Stage.RETRIEVE: "Passages are looked for.",
        Stage.MEMBERS: "The members are asked.",
        Stage.REVIEW: "The members review each other's answers.",
        Stage.SYNTHESIS: f"{_title(council.chair)} sums up.",
    }
    return lines.get(stage, "")


def _answer(council: Council, event: Mapping[str, Any]) -> str:
    title = _titled(council, str(event.get("name") or ""))
    took_s = event.get("response_time")
    took = f" ({took_s:.1f} s)" if isinstance(took_s, int | float) else ""
    if event.get("success"):
        return f"{title} has answered{took}."
    why = str(event.get("error") or event.get("state") or "no reason given")
    return f"{title} has not answered{took}: {why[:_MOST_WHY]}"


def _review(council: Council, event: Mapping[str, Any]) -> str:
    title = _titled(council, str(event.get("name") or event.get("reviewer") or ""))
    if event.get("state") == "unusable":
        return f"{title}'s review cannot be used: {str(event.get('error') or '')[:_MOST_WHY]}"
    return f"{title} has reviewed the others' answers."


def _agreement(event: Mapping[str, Any]) -> str:
    """Before anybody sums up: what is in dispute is not known yet, so no more is said than what was measured."""
    score = event.get("score")
    if event.get("measured") and isinstance(score, int | float):
        return f"Claims that match: {score:.2f} of 1."
    return f"Claims not compared: {str(event.get('why') or 'no reason given')[:_MOST_WHY]}."


def _titled(council: Council, name: str) -> str:
    member = council.member(name)
    return name if member is None else _title(member)


def _title(member: Member) -> str:
    return f"{member.emoji} {member.name}" if member.emoji else member.name
