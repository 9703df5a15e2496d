"""A systemd unit for a command that dispatches: how it is started, stopped and kept from the rest of the machine.

Stopping has two steps, as Ctrl-C has: a signal, time for what runs to finish, and a second signal that puts the
rest back. Only what hangs beyond that is killed. Programs of attempts live in the same control group and are not
signalled by systemd: the dispatcher ends them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

COMMANDS = ("serve", "work", "loop", "watch")  # those that run until they are stopped

# A dispatcher puts back what runs, and closes its hosts, in less, also where an engine hangs.
_PUT_BACK_S = 60
_RESTART_S = 5
_WRONG_USE = 2  # exit status: starting again would find the same config
_TEMPORARY = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - hidden by PrivateTmp
_SYSTEM_WIDE = (
    "ProtectControlGroups=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
)
_EVERYWHERE = ("LockPersonality=yes", "NoNewPrivileges=yes", "RestrictRealtime=yes", "RestrictSUIDSGID=yes")


@dataclass(frozen=True, slots=True)
class Tools:
    """Programs that the unit stops the service with."""

    kill: str = "/usr/bin/kill"
    timeout: str = "/usr/bin/timeout"
    tail: str = "/usr/bin/tail"


@dataclass(frozen=True, slots=True)
class Service:
    """What the unit is for."""

    name: str  # without .service
    program: Sequence[str]  # with what it needs before the command
    words: Sequence[str]  # the command and its options
    folder: Path
    writes: Sequence[Path] = ()  # folders that it must be able to write to
    # What belongs to the store lies in the account's own folder, not beside the store.
    keeps_state: bool = False
    secrets: Sequence[str] = ()  # environment variables that hosts and the store take their keys from
    secrets_file: Path | None = None
    path: str = ""  # the environment variable PATH
    account: str | None = None  # whom a system unit runs as
    is_users: bool = False  # of a user's own manager, not of the machine's
    joins_node: bool = False  # of a Ray cluster, on this machine
    # What runs may take so long when the service is stopped; of two signals at once one is lost.
    finish_s: int = 60
    tools: Tools = Tools()

    @property
    def file(self) -> str:
        folder = "~/.config/systemd/user" if self.is_users else "/etc/systemd/system"
        return f"{folder}/{self.name}.service"

    @property
    def install(self) -> tuple[str, ...]:
        """The commands that start it once the file is there."""
        systemctl = "systemctl --user" if self.is_users else "sudo systemctl"
        commands = (f"{systemctl} daemon-reload", f"{systemctl} enable --now {self.name}")
        # Without lingering a user's services end with the last session.
        return (*commands, "loginctl enable-linger") if self.is_users else commands


def unit_text(service: Service) -> str:
    """The unit file."""
    return "\n".join(
        [*_head(service), "", *_unit(service), "", *_service(service), "", *_install(service), ""]
    )


def _head(service: Service) -> Iterator[str]:
    yield f"# {service.file}"
    for command in service.install:
        yield f"#   {command}"


def _unit(service: Service) -> Iterator[str]:
    yield "[Unit]"
    yield f"Description=Penstock: {_plain(' '.join(service.words))}"
    if not service.is_users:  # a user's manager knows no network target
        yield "Wants=network-online.target"
        yield "After=network-online.target"


def _service(service: Service) -> Iterator[str]:
    tools = service.tools
    yield "[Service]"
    yield "Type=exec"
    yield f"ExecStart={' '.join(map(quoted, (*service.program, *service.words)))}"
    yield f"WorkingDirectory={_plain(str(service.folder))}"
    if service.path:
        yield f"Environment={quoted(f'PATH={service.path}', is_command=False)}"
    if service.keeps_state and not service.is_users:
        # An account for services has no home that may be written to; systemd makes it a folder below %S.
        yield "Environment=XDG_STATE_HOME=%S"
        yield "StateDirectory=penstock"
        yield "StateDirectoryMode=0700"
    if service.secrets:
        yield f"# Put {', '.join(service.secrets)} there, a line each: NAME=value. Let nobody else read the file."
        yield f"EnvironmentFile=-{_plain(str(service.secrets_file))}"
    if service.account is not None and not service.is_users:
        yield f"User={service.account}"
    yield ""
    yield "Restart=on-failure"
    yield f"RestartSec={_RESTART_S}"
    yield f"RestartPreventExitStatus={_WRONG_USE}"
    yield ""
    yield f"# The first signal lets what runs finish, for {service.finish_s} s; the second ends what still runs."
    yield f"ExecStop=-{quoted(tools.kill)} -s TERM $MAINPID"
    wait = f"{quoted(tools.timeout)} {service.finish_s} {quoted(tools.tail)}"
    yield f"ExecStop=-{wait} --pid=${{MAINPID}} -f /dev/null"
    yield "KillMode=mixed"
    yield "KillSignal=SIGTERM"
    yield f"TimeoutStopSec={service.finish_s + _PUT_BACK_S}"
    yield ""
    yield from _hardening(service)


def _hardening(service: Service) -> Iterator[str]:
    yield from _EVERYWHERE
    if service.is_users:
        return  # what follows takes privileges that a user's manager does not have
    yield from _SYSTEM_WIDE
    if service.joins_node:
        yield "# No PrivateTmp: the Ray node of this machine has its address, sockets and logs below /tmp/ray."
    elif not any(
        folder.is_relative_to(temporary) for folder in _touched(service) for temporary in _TEMPORARY
    ):
        yield "PrivateTmp=yes"
    yield "ProtectSystem=strict"
    if service.joins_node:
        yield f"ReadWritePaths={_TEMPORARY[0]}"  # not /tmp/ray, which may not be there yet
    for folder in service.writes:
        may_miss = "" if folder.is_dir() else "-"  # of one that is missing and must not, nothing would start
        yield f"ReadWritePaths={quoted(f'{may_miss}{folder}', is_command=False)}"


def _touched(service: Service) -> Iterator[Path]:
    yield service.folder
    yield from service.writes


def _install(service: Service) -> Iterator[str]:
    yield "[Install]"
    yield f"WantedBy={'default.target' if service.is_users else 'multi-user.target'}"


# ---- how systemd reads words


def quoted(word: str, *, is_command: bool = True) -> str:
    """A word as it is: blanks, quotes, specifiers and, in a command, variables mean nothing."""
    text = _plain(word).replace("\\", "\\\\").replace('"', '\\"')
    if is_command:
        text = text.replace("$", "$$")
    return f'"{text}"' if not text or any(c in " \t\\'\";" for c in text) else text


def _plain(text: str) -> str:
    """In a value that is one word whatever it holds."""
    return text.replace("%", "%%")
