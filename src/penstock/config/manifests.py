"""An agent's folder: what its manifest.json says, in the form that Ploinky's agents have.

    { "name": "reports", "image": "localhost/reports:latest",
      "commands": { "install": "…", "update": "…", "run": "…" }, "env": ["TZ=UTC", "REPORTS_TOKEN"],
      "taskRunner": "http" }

Its commands are texts, split into words as a shell would, but no shell reads them. Keys that mean nothing here
are left alone and kept by name, so that `check` can tell of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.config import keys
from penstock.config.problems import Problems, dotted, kind_alone, quoted
from penstock.config.tables import Table

MANIFEST = "manifest.json"
COMMANDS = ("install", "update", "run")
_KNOWN = ("name", "image", "commands", "env", "taskRunner")
_RUNNER = "http"
_FOR_A_SHELL = ("&&", "||", "|", ";", "&", ">", "<", "$", "`", "(", ")", "*", "?", "\n")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What there is of it; a key that it does not have is None."""

    image: str | None = None
    run: tuple[str, ...] | None = None
    install: tuple[str, ...] | None = None
    update: tuple[str, ...] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    pass_env: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()  # keys that mean nothing here


class ManifestError(ValueError):
    """What is wrong with a manifest, each with the place in it."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


def read_manifest(folder: str) -> Manifest | None:
    """The manifest of a folder; None where there is none."""
    import json

    text = _text_of(folder)
    if text is None:
        return None
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ManifestError(
            (f"{MANIFEST}:{error.lineno}: is not JSON: {error.msg.lower()}; correct it",)
        ) from None
    except (RecursionError, ValueError):
        raise ManifestError((f"{MANIFEST}: is nested too deeply, or has too long a number",)) from None
    problems = Problems()
    manifest = _read(document, problems)
    if problems:
        from penstock.config.places import json_lines

        raise ManifestError(problems.told(MANIFEST, lambda: json_lines(text)))
    return manifest


def _text_of(folder: str) -> str | None:
    try:
        if not os.path.isdir(folder):
            raise ManifestError(
                ("there is no such folder; an agent's `path` is one that holds its handlers/",)
            )
        with open(os.path.join(folder, MANIFEST), "rb") as file:
            data = file.read(keys.MAX_MANIFEST_BYTES + 1)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        if isinstance(error, ManifestError):
            raise
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ManifestError((f"{MANIFEST}: cannot be read: {reason}",)) from None
    if len(data) > keys.MAX_MANIFEST_BYTES:
        raise ManifestError((f"{MANIFEST}: is over {keys.MAX_MANIFEST_BYTES // 1024} KiB; make it smaller",))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ManifestError((f"{MANIFEST}: is not UTF-8 text; save the file as UTF-8",)) from None


def _read(document: Any, problems: Problems) -> Manifest:
    if not isinstance(document, Mapping):
        problems.add((), f'must be an object like {{"image": "…"}}, not {kind_alone(document)}')
        return Manifest()
    image = document.get("image")
    if image is not None and not is_image(image):
        problems.add(("image",), f"must be the name of an image, not {kind_alone(image)}")
        image = None
    runner = document.get("taskRunner", _RUNNER)
    if runner != _RUNNER:
        problems.add(("taskRunner",), f'must be "{_RUNNER}"; nothing else is known')
    commands = _commands(document, problems)
    env, pass_env = _env(document, problems)
    return Manifest(
        image=image,
        run=commands.get("run"),
        install=commands.get("install"),
        update=commands.get("update"),
        env=env,
        pass_env=pass_env,
        ignored=_ignored(document),
    )


def _ignored(document: Mapping[str, Any]) -> tuple[str, ...]:
    commands = document.get("commands")
    inner = commands if isinstance(commands, Mapping) else {}
    names = [dotted((key,)) for key in document if key not in _KNOWN]
    return tuple(names + [dotted(("commands", key)) for key in inner if key not in COMMANDS])


def _commands(document: Mapping[str, Any], problems: Problems) -> dict[str, tuple[str, ...]]:
    commands = document.get("commands")
    if commands is None:
        return {}
    if not isinstance(commands, Mapping):
        problems.add(("commands",), f'must be an object like {{"run": "…"}}, not {kind_alone(commands)}')
        return {}
    found = {}
    for name in COMMANDS:
        value = commands.get(name)
        if value is None or value == "":
            continue
        argv = _argv(name, value, problems)
        if argv:
            found[name] = argv
    return found


def _argv(name: str, value: Any, problems: Problems) -> tuple[str, ...]:
    """The words of a command: a list as it is, or a text split as a shell would."""
    import shlex

    path = ("commands", name)
    if isinstance(value, list):
        if value and all(is_word(word) for word in value) and value[0] and len(value) <= keys.MAX_WORDS:
            return tuple(value)
        problems.add(path, "must be text, or a list of texts that begins with a program")
        return ()
    if not is_word(value):
        problems.add(path, f"must be text, not {kind_alone(value)}")
        return ()
    found = _shell_only(value)
    if found is not None:
        problems.add(
            path,
            f"has {quoted(found)}, which only a shell understands, and none reads it; put it in a script in "
            f'this folder and say "sh /agent/{name}.sh"',
        )
        return ()
    try:
        words = shlex.split(value)
    except ValueError as error:
        problems.add(path, f"cannot be split into words: {str(error).lower()}; close it")
        return ()
    if not words or not words[0] or len(words) > keys.MAX_WORDS:
        problems.add(path, f"must have from 1 to {keys.MAX_WORDS} words, first a program")
        return ()
    if "=" in words[0]:
        problems.add(path, "begins with a variable, which only a shell understands; move it to env")
        return ()
    return tuple(words)


def _shell_only(text: str) -> str | None:
    """The first sign in a text that a shell would act on; what stands in single quotes is plain."""
    plain = "".join(part for number, part in enumerate(text.strip().split("'")) if number % 2 == 0)
    found = [(plain.find(sign), -len(sign), sign) for sign in _FOR_A_SHELL if sign in plain]
    return min(found)[2] if found else None


def _env(document: Mapping[str, Any], problems: Problems) -> tuple[dict[str, str], tuple[str, ...]]:
    """Those with a value, and the names of those that are taken from our own environment."""
    given = document.get("env")
    if given is None:
        return {}, ()
    if isinstance(given, Mapping):
        entries = [(("env", name), name, value) for name, value in given.items()]
    elif isinstance(given, list) and len(given) <= keys.MAX_VARIABLES:
        entries = []
        for number, entry in enumerate(given):
            if not isinstance(entry, str):
                problems.add(("env", number), f'must be "NAME" or "NAME=VALUE", not {kind_alone(entry)}')
                continue
            name, equals, value = entry.partition("=")
            entries.append((("env", number), name.strip(), value if equals else None))
    else:
        problems.add(("env",), f'must be a list like ["NAME", "NAME=VALUE"], not {kind_alone(given)}')
        return {}, ()
    env: dict[str, str] = {}
    passed: dict[str, None] = {}
    for path, name, value in entries:
        if (wrong := variable_problem(name, value)) is not None:
            problems.add(path, wrong)
        elif value is None:
            passed[name] = None
        else:
            env[name] = value
    return env, tuple(name for name in passed if name not in env)


# ---- what both forms of an agent must hold to


def is_word(value: object) -> bool:
    """Whether it can be one word of an argv."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        return len(value.encode()) <= keys.MAX_WORD
    except UnicodeEncodeError:  # half a character
        return False


def is_image(value: object) -> bool:
    return isinstance(value, str) and keys.IMAGE.fullmatch(value) is not None


def variable_problem(name: str, value: object) -> str | None:
    """What is wrong with a variable for a container; without a value it is taken from our environment."""
    if not keys.VARIABLE.fullmatch(name):
        return "must be the name of a variable: letters, digits and '_', first no digit"
    if name.startswith(keys.OWN_VARIABLES):
        return f"{name} is set by Penstock itself; remove it"
    if value is None:
        return None
    if not is_word(value):
        return f"must be text, not {kind_alone(value)}"
    if name.lower() in keys.SECRETS or name.lower().rpartition("_")[2] in keys.SECRET_WORDS:
        return (
            "a secret does not belong in this file; keep it in an environment variable of that name: "
            f'pass_env = ["{name}"]'
        )
    return None


def read_env(table: Table) -> dict[str, str]:
    """The variables that a table `env` sets; what is wrong with them is told by the table."""
    inner = table.table("env", '{ TZ = "UTC" }')
    found: dict[str, str] = {}
    for name, value in {} if inner is None else inner.raw.items():
        assert inner is not None
        wrong = "must be text in quotes, not nothing" if value is None else variable_problem(name, value)
        if wrong is None:
            found[name] = value
        else:
            inner.refuse(wrong, name)
    return found
