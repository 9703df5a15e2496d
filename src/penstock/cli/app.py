"""The commands, loaded when they are used, and what becomes of an error: one line on stderr, a status.

0 all well; 1 some task failed; 2 wrong use or config; 3 store or dispatcher; 130 interrupted.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from copy import copy
from importlib import import_module
from pathlib import Path
from types import MethodType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_command_from_info, get_group

from penstock.cli.session import INTERRUPTED, Settings
from penstock.errors import PenstockError, UsageError

PROGRAM = "penstock"
_OUTPUT_FAULTS = (errno.ENOSPC, errno.EIO, errno.EBADF, errno.EFBIG, errno.EDQUOT)

_REMEDIES = {
    errno.ENOENT: "correct the name",
    errno.ENOTDIR: "correct the name",
    errno.EISDIR: "name a file",
    errno.EACCES: "give yourself the permission, or name another",
    errno.EPERM: "give yourself the permission, or name another",
    errno.EROFS: "name one on a file system that can be written",
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
}

# In the order of --help: the module that has the command.
COMMANDS = {
    "demo": "demo",
    "init": "setup",
    "check": "setup",
    "simulate": "simulate",
    "ask": "ask",
    "run": "work",
    "work": "work",
    "submit": "submit",
    "tasks": "queue",
    "show": "queue",
    "results": "answers",
    "why": "why",
    "timeline": "timeline",
    "diagnose": "diagnose",
    "whatif": "whatif",
    "compare": "compare",
    "status": "status",
    "top": "top",
    "cancel": "queue",
    "retry": "queue",
    "priority": "queue",
    "pause": "queue",
    "resume": "queue",
    "export": "exchange",
    "import": "exchange",
    "store": "stores",
    "serve": "serve",
    "loop": "loop",
    "watch": "watch",
    "agent-server": "agent_server",
    "agent": "agent",
    "council": "council",
    "token": "tokens",
    "systemd": "systemd",
}

# What Typer raises for wrong use. Its versions keep the class in different places, below the same children.
_WrongUse: type[Exception] = typer.BadParameter.__mro__[2]


class _Interrupted(Exception):
    """A KeyboardInterrupt on its way past Typer, which would end the command without a word."""


class _ReaderLeft(Exception):
    """A BrokenPipeError on its way past Typer, which would call it a failure."""


class Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return [_taken_as_given(param) for param in super().get_params(ctx)]


class Commands(TyperGroup):
    """Builds a command when it is asked for: `submit` need not pay for all the others."""

    def get_params(self, ctx: Any) -> list[Any]:
        return [_taken_as_given(param) for param in super().get_params(ctx)]

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            self.commands[cmd_name] = self._built(cmd_name)
        return self.commands.get(cmd_name)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise _Interrupted from None
        except BrokenPipeError:
            raise _ReaderLeft from None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS:
            from penstock.config.problems import meant

            raise UsageError(f"there is no command {args[0]!r}{meant(args[0], COMMANDS, 'commands')}")
        return super().resolve_command(ctx, args)

    def _built(self, name: str) -> Any:
        family = import_module(f"penstock.cli.{COMMANDS[name]}").app
        for info in family.registered_commands:
            info.cls = Command
            if info.name == name:
                command = get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=None)
                return self._with_options(command)
        group: Any = get_group(family)
        group.name = name
        for command in group.commands.values():
            self._with_options(command)
        return group

    def _with_options(self, command: Any) -> Any:
        """The options of every command are taken after its name as well."""
        command.params += [_also_here(param) for param in self.params if param.name in ("config", "settings")]
        return command


class Family(TyperGroup):
    """Commands of one noun: `token add`, `token list`."""

    def get_params(self, ctx: Any) -> list[Any]:
        return [_taken_as_given(param) for param in super().get_params(ctx)]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            from penstock.config.problems import meant

            hint = meant(args[0], self.commands, "commands")
            raise UsageError(f"{ctx.info_name}: there is no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)


def _also_here(param: Any) -> Any:
    also = copy(param)
    also.hidden = True
    also.expose_value = False
    also.callback = _take_over
    return also


def _take_over(context: typer.Context, param: Any, value: Any) -> None:
    if value and param.name == "config":
        context.obj.config = Path(value)
    elif value:
        context.obj.settings += value


def _taken_as_given(param: Any) -> Any:
    """The parameter, its text left as it is.

    Newer versions of Typer load pydantic to turn text into types, which costs more than all the rest of
    `submit`. Our parameters are texts and flags; what a text means is read by the command, which can also
    say better what is wrong with it.
    """
    if hasattr(param, "get_runtime_param"):
        param.process_value = MethodType(_as_given, param)
    if param.metavar is None and not getattr(param, "is_flag", False):  # --lane LANE, not --lane <str>
        param.metavar = param.opts[0].lstrip("-").upper()
    if param.param_type_name == "argument":
        param.get_usage_pieces = MethodType(_usage, param)
        param.get_help_record = MethodType(_help_record, param)
    return param


def _usage(param: Any, context: typer.Context) -> list[str]:
    """An argument in the line of usage: FILE, [TASK], [TASK]...; no sign of how it is taken apart."""
    several = param.nargs != 1 and " " not in param.metavar  # such as COMMAND [OPTIONS], which says it itself
    return [(param.metavar if param.required else f"[{param.metavar}]") + ("..." if several else "")]


def _help_record(param: Any, context: typer.Context) -> tuple[str, str]:
    """An argument in the list of them, without the type of Python that it has."""
    return param.metavar, (param.help or "") + ("  [required]" if param.required else "")


def _as_given(param: Any, context: typer.Context, value: Any) -> Any:
    if value is None and (param.multiple or param.nargs == -1):
        value = ()
    if param.required and param.value_is_missing(value):
        command = context.command_path.removeprefix(PROGRAM).strip()
        missing = " ".join(
            [*(name for name in param.opts[:1] if name.startswith("-")), param.metavar or param.name]
        )
        raise UsageError(f"{command}: {missing} is missing; see `{PROGRAM} {command} --help`")
    return value if param.callback is None else param.callback(context, param, value)


app = typer.Typer(
    cls=Commands,
    name=PROGRAM,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Each command explains itself: penstock run --help",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from penstock.version import __version__

        print(f"{PROGRAM} {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="The config. Without it: the penstock.toml of this folder or a parent, the file that "
            "PENSTOCK_CONFIG names, or your own.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Set one key of the config for this command, like hosts.fenrir.slots=4. May be repeated.",
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Dispatches AI-agent work: every host full, none over-full, nothing lost, every wait explained."""
    context.obj = Settings(Path(config) if config else None, settings or [])
    if context.invoked_subcommand is None:
        print(context.get_help())


# ---- what errors look like outside


def main(arguments: Sequence[str]) -> int:
    """Run a command line; its exit status."""
    _ready_streams()
    status: int | None = 0
    try:
        status = get_command(app).main(list(arguments), prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
    except (_ReaderLeft, BrokenPipeError):
        return _reader_left(status or 0)
    except (_Interrupted, KeyboardInterrupt):
        return _told(["interrupted"], INTERRUPTED)
    except PenstockError as error:
        return _told(str(error).splitlines() or [type(error).__name__], error.exit_status)
    except _WrongUse as error:
        return _told([_wrong_use(error)], 2)
    except OSError as error:
        if error.filename is None and error.errno not in _OUTPUT_FAULTS:
            raise
        place = "output" if error.filename is None else os.fsdecode(error.filename)
        what = error.strerror or "cannot be used"
        if error.errno is not None and what == os.strerror(error.errno):  # others say themselves what to do
            what = f"{what[:1].lower()}{what[1:]}; {_REMEDIES.get(error.errno, 'name another')}"
        return _told([f"{place}: {what}"], 2)
    return int(status or 0)


def _ready_streams() -> None:
    """A stream that is closed, or a terminal that cannot show a sign, is no reason to fail."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - it is there to the end
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _told(lines: Sequence[str], status: int) -> int:
    from contextlib import suppress

    with suppress(OSError):
        sys.stdout.flush()
        for line in lines:
            sys.stderr.write(f"{PROGRAM}: {line}\n")
        sys.stderr.flush()
    return status


def _reader_left(status: int) -> int:
    """Whoever read our output has seen enough. Python must not try to write the rest when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


def _wrong_use(error: Any) -> str:
    """Typer's message as ours: the command first, one line, a near spelling where there is one."""
    context = getattr(error, "ctx", None)
    where = "" if context is None else context.command_path.removeprefix(PROGRAM).strip()
    wrong = getattr(error, "option_name", None)
    if wrong is not None and type(error).__name__ == "NoSuchOption":
        from penstock.config.problems import meant

        known = (
            [name for param in context.command.params for name in (*param.opts, *param.secondary_opts)]
            if context
            else []
        )
        long = [name for name in known if name.startswith("--")]
        what = f"there is no option {wrong}{meant(wrong, long, 'options')}"
    else:
        what = " ".join(error.format_message().split()).rstrip(".")
        what = what[:1].lower() + what[1:]
    hint = f"; see `{PROGRAM} {where} --help`" if where and "?" not in what else ""
    return f"{where}: {what}{hint}" if where else what
