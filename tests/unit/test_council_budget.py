"""Estimates of tokens err upwards: held against real vocabularies, in the scripts that they know worst."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from penstock.council.plan.budget import MESSAGE_TOKENS, tokens_of, tokens_of_messages

TEXTS = {
    "English": "The loop runs no user code. A watchdog names code that blocks it, with its stack and its task.",
    "terms": "Electroencephalography, deoxyribonucleic acid, Nebuchadnezzar and Zoroastrianism; Kendall's W.",
    "capitals": "THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG WITH EXTRAORDINARY ENTHUSIASM",
    "figures": "In 1984 there were 1234567890 items at 3.14159 each, 12:34:56 on 2026-11-16.",
    "hashes": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4 QmFzZTY0IGlzIGEgd2F5IHRvIGVuY29kZSBkYXRh",
    "code": "def f(x: int) -> str:\n    if x > 0:\n        return f'{x!r:>10}'\n    raise ValueError(x)\n",
    "table": "| a | b |\n|---|---|\n| 1 | 2 |\n\n- **bold** item\n- `code`\n",
    "German": "Die Donaudampfschifffahrtsgesellschaft verkehrte täglich; die Kapitäne waren stolz darauf.",
    "Russian": "Диспетчер не выполняет пользовательский код в своём цикле; задачи идут в отдельных потоках.",
    "Greek": "Ο αποστολέας δεν εκτελεί κώδικα χρήστη στον βρόχο του· οι εργασίες εκτελούνται αλλού.",
    "Chinese": "调度程序的循环不运行用户代码。黄河之水天上来，奔流到海不复回。",
    "Japanese": "ディスパッチャーのループはユーザーコードを実行しません。看板と歌舞伎は日本の文化です。",
    "Korean": "디스패처의 루프는 사용자 코드를 실행하지 않습니다. 비동기 호출은 자체 루프에서 실행됩니다.",
    "Arabic": "حلقة المرسل لا تشغل كود المستخدم. تعمل المهام في خيوط أو عمليات منفصلة.",
    "Hindi": "डिस्पैचर का लूप उपयोगकर्ता कोड नहीं चलाता है। कार्य अलग थ्रेड में चलते हैं।",
    "Thai": "ลูปของตัวจัดส่งไม่รันโค้ดของผู้ใช้ งานจะทำงานในเธรดแยกต่างหาก",
    "Amharic": "የላኪው ዙር የተጠቃሚ ኮድ አያስኬድም።",
    "signs": "🥋🐉🔥👩‍👩‍👧‍👦 ✅ → ≤ … “quoted” — ‘x’ ∑ ∫ ∀ε ∃δ",
}


@cache
def vocabulary(place: str) -> Tokenizer:
    package, _, rest = place.partition("/")
    spec = find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Tokenizer.from_file(str(Path(spec.submodule_search_locations[0]) / rest))


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_the_estimate_is_above_real_counts_and_not_far(text: str) -> None:
    real = len(vocabulary("litellm/litellm_core_utils/tokenizers/anthropic_tokenizer.json").encode(text).ids)
    assert real <= tokens_of(text) <= 3.2 * real


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_parts_are_never_estimated_below_the_whole(text: str) -> None:
    """Prompts are fitted piece by piece: the pieces must not come to less than what they make."""
    for at in range(len(text) + 1):
        assert tokens_of(text[:at] + "\n\n" + text[at:]) <= tokens_of(text[:at]) + tokens_of(text[at:]) + 2


def test_nothing_is_no_token_and_messages_cost_their_frame() -> None:
    assert tokens_of("") == 0
    assert tokens_of_messages([{"role": "user", "content": "cats"}] * 2) == 2 * (2 + MESSAGE_TOKENS)
