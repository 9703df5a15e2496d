"""The key of a model server: read from the environment or a file, sent to the server, shown to nobody.

Everything that a server said goes through `redact` before it is told: some echo the key they refuse.
"""

from __future__ import annotations

import os

import msgspec

from penstock.errors import HostNeedsFix

_MOST_BYTES = 65_536
_LEAST_SECRET = 4  # a shorter one guards nothing, and hiding it would garble every text
_HIDDEN = "[key]"


class Key:
    """A key is read when first needed and again when the server refuses it, so that a rotated one is found."""

    def __init__(
        self, host: str, env: str | None = None, file: str | None = None, *, value: str | None = None
    ) -> None:
        self._host = host
        self._env = env
        self._file = file
        self._value = value  # given for a server that we started ourselves
        self._hide = (value,) if value else ()  # all that were ever used: an old one is still a secret

    def __repr__(self) -> str:
        return f"Key({self.place})"

    @property
    def place(self) -> str:
        """Where it is kept, for messages."""
        if self._env:
            return f"the environment variable {self._env} (hosts.{self._host}.key_env)"
        return f"the file {self._file} (hosts.{self._host}.key_file)" if self._file else "no key"

    @property
    def remedy(self) -> str:
        if self._env or self._file:
            return f"put the right key into {self.place}"
        return f'give it a key: hosts.{self._host}.key_env = "NAME_OF_A_VARIABLE"'

    def value(self) -> str | None:
        """The key, if the host has one; HostNeedsFix when it cannot be read, with the remedy."""
        if self._value is None:
            self.read_again()
        return self._value

    def read_again(self) -> bool:
        """Whether it is another one now."""
        before = self._value
        if self._env:
            self._value = self._checked(os.environ.get(self._env, ""))
        elif self._file:
            self._value = self._checked(self._read_file(self._file))
        if self._value is not None and self._value != before and len(self._value) >= _LEAST_SECRET:
            escaped = msgspec.json.encode(self._value).decode()[1:-1]
            self._hide = tuple(dict.fromkeys([*self._hide, self._value, escaped]))
        return self._value != before

    def warning(self) -> str:
        """What is unwise about how it is kept."""
        try:
            loose = self._file is not None and os.stat(self._file).st_mode & 0o004
        except OSError:
            return ""
        return f"everybody on this machine can read {self._file}: chmod o= {self._file}" if loose else ""

    def redact(self, text: str) -> str:
        for secret in self._hide:
            text = text.replace(secret, _HIDDEN)
        return text

    def redact_bytes(self, data: bytes) -> bytes:
        for secret in self._hide:
            data = data.replace(secret.encode(), _HIDDEN.encode())
        return data

    def _read_file(self, file: str) -> str:
        try:
            with open(file, "rb") as opened:
                data = opened.read(_MOST_BYTES + 1)
        except FileNotFoundError:
            # Not by its name: who wrote the key itself there must not see it.
            told = "there is no such file; make it, or correct the path"
            raise HostNeedsFix(f"hosts.{self._host}.key_file: {told}") from None
        except OSError as error:
            raise HostNeedsFix(
                f"hosts.{self._host}.key_file: {file} cannot be read ({error.strerror}); "
                "let the user who runs the dispatcher read it"
            ) from None
        if len(data) > _MOST_BYTES:
            raise HostNeedsFix(f"hosts.{self._host}.key_file: {file} is too large to be a key; name another")
        return data.decode("utf-8", errors="replace")

    def _checked(self, text: str) -> str:
        key = text.strip()
        if not key:
            raise HostNeedsFix(f"there is no key in {self.place}; put one there")
        if not key.isascii() or not key.isprintable() or " " in key:
            raise HostNeedsFix(f"what is in {self.place} is no key: one word of plain ASCII is")
        return key
