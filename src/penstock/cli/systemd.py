"""Running as a service: `systemd` prints a unit file for a command that dispatches."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import render
from penstock.cli.session import Settings, config_of, one_of, whole
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.config import Config

app = typer.Typer()


@app.command(
    "systemd",
    context_settings={"allow_interspersed_args": False},
    epilog="\b\nExamples:\n"
    "  penstock systemd serve | sudo tee /etc/systemd/system/penstock-serve.service\n"
    "  penstock systemd --user work > ~/.config/systemd/user/penstock-work.service\n"
    "  penstock systemd --finish 600 loop --beads ~/project --on-stop block",
)
def systemd(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND [OPTIONS]",
            help="What the service runs: serve (the default), work, loop or watch, with its own options.",
        ),
    ] = None,
    of_user: Annotated[
        bool, typer.Option("--user", help="A unit of your own service manager, without root.")
    ] = False,
    account: Annotated[
        str | None,
        typer.Option("--as", metavar="ACCOUNT", help="Whom a system unit runs as; without it, you."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="The unit's name; without it, penstock-COMMAND.")
    ] = None,
    finish: Annotated[
        str,
        typer.Option("--finish", metavar="S", help="How long what runs may take to finish on a stop."),
    ] = "60",
    write: Annotated[
        list[str] | None,
        typer.Option(
            "--write", metavar="DIR", help="A folder that attempts write to as well. May be repeated."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the unit with its place as JSON.")] = False,
) -> int:
    """Print a systemd unit that keeps a dispatcher running.

    It names this program, this config and this folder by their full paths. A system unit may write to the folders
    of the store and of outputs and nowhere else. Stopping it finishes what runs, and after a while puts it back.
    """
    from penstock.config.own_files import SECRETS_FILE
    from penstock.setup.unit import COMMANDS, Service, Tools, unit_text

    command, *options = words or ["serve"]
    above: Any = context.parent
    one_of("systemd", command, [name for name in COMMANDS if name in above.command.list_commands(above)])
    if of_user and account is not None:
        raise UsageError("systemd: a unit of --user runs as that user; leave out --as")
    finish_s = whole("--finish", finish)
    given = _checked(context, command, options)  # among them may be its --config
    config = config_of(context)
    service = Service(
        name=_unit_name(name or f"penstock-{command}"),
        program=[*_program(), *_settings(context.obj, config)],
        words=[command, *options],
        folder=_full("."),
        writes=sorted({*_folders(config), *_folders_in(given), *map(_folder, write or ())}),
        keeps_state="://" in config.store,
        secrets=sorted({*_secrets(config)}),
        secrets_file=_beside(config) / SECRETS_FILE,
        path=os.environ.get("PATH", ""),
        account=account or _account(),
        is_users=of_user,
        joins_node=config.engine.joins_node,
        finish_s=finish_s,
        tools=Tools(*(shutil.which(tool) or f"/usr/bin/{tool}" for tool in ("kill", "timeout", "tail"))),
    )
    _check_signs((*service.program, service.path, *map(str, (service.folder, *service.writes))))
    text = unit_text(service)
    if as_json:
        render.emit(
            {
                "name": f"{service.name}.service",
                "file": service.file,
                "install": service.install,
                "unit": text,
            }
        )
    else:
        print(text, end="")
    return 0


def _checked(context: typer.Context, command: str, options: Sequence[str]) -> Mapping[str, Any]:
    """What the command makes of its options; wrong ones are found here, not by the service manager."""
    above: Any = context.parent
    parser = above.command.get_command(above, command)
    inner = parser.make_context(command, list(options), parent=above)
    given: Mapping[str, Any] = inner.params
    _check_signs((command, *options))
    read = import_module(parser.callback.__module__).read_options
    read(inner, *(given[name] for name in list(signature(read).parameters)[1:]))
    return given


def _check_signs(words: Iterable[str]) -> None:
    for word in words:
        if any(ord(sign) < ord(" ") for sign in word):
            raise UsageError(
                f"systemd: {word!r} has a control character, which a unit cannot have; rename it"
            )


def _unit_name(name: str) -> str:
    bare = name.removesuffix(".service")
    if not bare or not all(c.isascii() and (c.isalnum() or c in "-_.:@") for c in bare):
        raise UsageError(f"--name: {name!r} must be letters, digits and -_.:@, as systemd names units")
    return bare


def _program() -> list[str]:
    """This very program by its full path: the one installed beside this Python, or the module."""
    python = Path(sys.executable)
    script = python.with_name("penstock")
    return [str(script)] if os.access(script, os.X_OK) else [str(python), "-m", "penstock"]


def _settings(settings: Settings, config: Config) -> Iterator[str]:
    if config.path is not None:
        yield from ("--config", str(_full(config.path)))
    for setting in settings.settings:
        if setting.startswith("store=") and _has_password(config.store):
            raise UsageError(
                "systemd: everybody can read a unit; leave the password out of store, set PGPASSWORD"
            )
        yield from ("--set", setting)


def _has_password(store: str) -> bool:
    from penstock.config.masking import may_hold_secret

    return may_hold_secret(store)


def _beside(config: Config) -> Path:
    return _full(".") if config.path is None else _full(config.path).parent


def _full(path: Path | str) -> Path:
    """Without `..`, which systemd refuses; a link stays one, since its target may be changed."""
    return Path(os.path.abspath(Path(path).expanduser()))


def _folders(config: Config) -> Iterator[Path]:
    """Where the store lies (journal and bells lie beside it), outputs go, hosts work and passages are kept."""
    if "://" not in config.store:
        yield _full(config.store).parent
    yield _full(config.outputs)
    for host in config.plant.hosts:
        if isinstance(given := host.options.get("work_dir"), str):
            yield _full(given)
    shelves = [council.retrieval for council in config.councils.values() if council.retrieval is not None]
    kept = [*(agent.queue for agent in config.agents.values()), *(one.path for one in shelves)]
    for folder in map(_full, filter(None, kept)):
        yield folder if folder.is_dir() else folder.parent  # it is made there


def _secrets(config: Config) -> Iterator[str]:
    """The variables that the store, hosts, agents and nodes want from our environment."""
    if "://" in config.store and not _has_password(config.store):
        yield "PGPASSWORD"
    for host in config.plant.hosts:
        if key := host.options.get("key_env"):
            yield str(key)
        yield from map(str, host.options.get("pass_env", ()))
    for agent in config.agents.values():
        yield from agent.pass_env
    if config.engine.is_ray:
        yield from config.engine.pass_env


def _folders_in(given: Mapping[str, Any]) -> Iterator[Path]:
    """Folders among a command's options: those that it works in."""
    for value in given.values():
        if isinstance(value, str) and (folder := _full(value)).is_dir():
            yield folder


def _folder(text: str) -> Path:
    folder = _full(text)
    if not folder.is_dir():
        raise UsageError(f"--write: there is no folder {text!r}; make it first, or the unit will not start")
    return folder


def _account() -> str | None:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a number without a name, as containers have
        return str(os.getuid())
