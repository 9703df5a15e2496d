"""`ask`: one question to a model, through the queue, its answer printed as it comes.

Ctrl-C cancels the task; the second time it does not wait for that.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import render
from penstock.cli.session import APART_S, INTERRUPTED, config_of, finish, hearing_interrupts, opened
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.cli.session import Interrupts
    from penstock.client import Client
    from penstock.config import Config
    from penstock.model import Result, Task

app = typer.Typer()

_WAIT_S = 3.0  # without an answer, until it is said what it waits for
_HOST_DOWN = "host-down"
_STDIN = "-"


@app.command(
    "ask",
    epilog="\b\nExamples:\n"
    '  penstock ask "What is a queue?"\n'
    '  cat notes.md | penstock ask "Summarize this"\n'
    "  penstock ask --model qwen2.5-32b --system 'Answer in one word.' 'Is water wet?'",
)
def ask(
    context: typer.Context,
    prompt: Annotated[
        str | None, typer.Argument(metavar="PROMPT", help="What to ask; what stdin says goes before it.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="The model, or a name of [models]; any without it.")
    ] = None,
    host: Annotated[str | None, typer.Option("--host", help="Only there.")] = None,
    system: Annotated[
        str | None, typer.Option("--system", "-s", metavar="TEXT", help="What the model is told first.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the record of the task when it has ended.")
    ] = False,
) -> int:
    """Ask a model, and print its answer as it comes.

    It is a task like all others: it waits for its turn, and `penstock why last` says why. Where `serve` or `work`
    runs, that does it; else this command does it itself, and leaves all other tasks queued. Exit status 1 when
    there is no answer.
    """
    config = config_of(context)
    task = _task_of(config, _prompt_of(prompt), system, model, host)
    return finish(_ask(config, task, as_json=as_json))


def _prompt_of(given: str | None) -> str:
    """What stdin says goes before what was typed, as in other such programs. A terminal is read only if asked."""
    parts = []
    if given in (None, _STDIN) or not sys.stdin.isatty():
        parts.append(sys.stdin.buffer.read().decode("utf-8", "replace").strip("\n"))
    if given not in (None, _STDIN):
        parts.append(str(given))
    prompt = "\n\n".join(part for part in parts if part.strip())
    if not prompt:
        raise UsageError('ask: nothing was asked; write it: penstock ask "…"')
    return prompt


def _task_of(config: Config, prompt: str, system: str | None, model: str | None, host: str | None) -> Task:
    """A call of a model as a task: it goes to the hosts that have the model."""
    from dataclasses import replace

    from penstock.config import TaskChecker
    from penstock.config.call_tasks import call_task
    from penstock.config.names import Names
    from penstock.model import OnCrash
    from penstock.store.ids import new_run

    names = Names(config)
    asked = names.asked(model)
    if model is not None and asked is None:
        raise UsageError(f"ask: --model: {names.unknown(model)}")
    messages = [] if system is None else [{"role": "system", "content": system}]
    messages.append({"role": "user", "content": prompt})
    payload = {"messages": messages, "stream": True}
    called = call_task("chat/completions", asked or "", payload, host=host, run=new_run())
    # Whoever asked may wait for the next dispatcher. Without a name any model is meant.
    task = replace(called, model=None if model is None else asked, on_crash=OnCrash.RETRY)
    if found := TaskChecker(config, calls=True).problems(task):
        told = (f"--{field}: {what}" if field in ("host", "model") else what for field, what in found)
        raise UsageError("\n".join(f"ask: {one}" for one in told))
    return task


async def _ask(config: Config, task: Task, *, as_json: bool) -> int:
    from penstock.cli.leaving import leave
    from penstock.cli.logs import telling
    from penstock.wiring import Dispatching

    # Only its own question: what others have queued is not for this command to start.
    ours = Dispatching(command="penstock ask", only_run=task.run)
    with hearing_interrupts(APART_S) as interrupts, telling(render.note, of_hosts=False):
        async with opened(config, dispatching=ours) as client:
            since = time.time()
            run = await client.submit_call(task)
            asker = _Asker(client, run.task_ids[0], task, since=since, quiet=as_json)
            result = await asker.hear(interrupts)
            status = _tell(result, asker, as_json=as_json)
            await leave(client, run.name, interrupts)
    return status


def _tell(result: Result | None, asker: _Asker, *, as_json: bool) -> int:
    from penstock.answers import text_of

    asker.end_line()
    if asker.interrupted:
        render.note(f"ask: task {asker.id} is {'being cancelled' if result is None else result.state}")
        return INTERRUPTED
    assert result is not None
    if as_json:
        text = text_of(result.value) if result.ok else None
        render.emit(result.as_record() | {"text": text})
    elif result.ok:
        asker.answer(result.value)
    if not result.ok:
        why = render.one_line(asker.hosts.stuck or f"{result.state}: {result.error or 'no reason was given'}")
        render.note(f"ask: {why}; `penstock why {asker.id}` says more")
        return 1
    return 0


class _Asker:
    """Prints what is heard of the answer. Cancels it when somebody would not wait, or when nobody can answer it."""

    def __init__(self, client: Client, task_id: str, task: Task, *, since: float, quiet: bool) -> None:
        from penstock.cli.host_watch import HostWatch

        self.id = task_id
        self.hosts = HostWatch(client, {task_id: task}, render.note, since)
        self.interrupted = False
        self._client = client
        self._quiet = quiet
        self._heard = ""  # of this attempt
        self._is_whole = True  # else part of it was forgotten before it was heard
        self._is_under_way = False

    async def hear(self, interrupts: Interrupts) -> Result | None:
        """Its result; None where nobody would wait for it."""
        try:
            async with asyncio.TaskGroup() as self._group:
                self._listening = self._group.create_task(self._listen())
                beside = [self._group.create_task(one) for one in (self._say_why(), self._watch_hosts())]
                interrupts.tell(self._interrupt)
                await asyncio.wait([self._listening])
                for one in beside:
                    one.cancel()
                interrupts.tell(lambda _: None)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        return None if self._listening.cancelled() else await self._client.result(self.id)

    async def _listen(self) -> None:
        async for event in self._client.follow(self.id):
            self._is_under_way = True
            if not self._quiet:
                self._print(event)

    async def _watch_hosts(self) -> None:
        async with self._client.watching() as watch:
            while not self.interrupted:
                await self.hosts.look([self.id])
                if self.hosts.stuck is not None:
                    await self._client.cancel(self.id)
                    return
                await watch()

    def _print(self, event: Mapping[str, Any]) -> None:
        from penstock.client.following import is_partial, is_void

        self._is_whole = is_void(event) or (self._is_whole and not is_partial(event))
        if is_void(event):
            if self._heard:
                self.end_line()
                render.note(f"ask: it is tried again, on {event.get('host')}")
            self._heard = ""
        elif text := str(event.get("text") or ""):
            self._heard += text
            sys.stdout.write(render.shown(text))
            sys.stdout.flush()

    def end_line(self) -> None:
        """End the last line that was heard."""
        if self._heard and not self._heard.endswith("\n"):
            render.say()
            sys.stdout.flush()

    def answer(self, value: Any) -> None:
        """Print the answer where not all of it was heard."""
        if self._heard and self._is_whole:
            return
        if self._heard:
            render.note("ask: it was read too slowly, and a part is missing; this is the whole answer")
        render.answer(value)

    async def _say_why(self) -> None:
        """On a terminal: what it waits for, when that takes a while, and whenever it is something else."""
        from penstock.cli.why import in_short

        said = ""
        while sys.stderr.isatty() and not self._is_under_way:
            await asyncio.sleep(_WAIT_S)
            told = await self._client.why(self.id)
            reason = told.parts[-1].wait.reason if told.parts else ""
            if str(told.record.state) == "queued" and reason != said and not self._is_under_way:
                said = reason
                if reason != _HOST_DOWN:  # that is told whether or not this is a terminal
                    render.note(in_short(told))

    def _interrupt(self, _: int) -> None:
        if not self.interrupted:
            self.interrupted = True
            self._group.create_task(self._client.cancel(self.id))
        else:
            self._group.create_task(self._abandon())

    async def _abandon(self) -> None:
        await self._client.stop_dispatching(put_back=True)
        self._listening.cancel()
