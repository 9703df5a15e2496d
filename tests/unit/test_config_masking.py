"""A config as it may be shown: line for line, without what could be a secret (promise 8)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.masking import MASK, is_secret_name, masked, may_hold_secret

SECRET = "hunter2-and-more"


@pytest.mark.parametrize(
    "text",
    [
        f'api_key = "{SECRET}"',
        f"api_key = '{SECRET}'",
        f"api_key = {SECRET}",
        f'"x-api-key" = "{SECRET}"',
        f'hosts.cloud.token = "{SECRET}"',
        f'# key = "{SECRET}"',
        f'key = "{SECRET}',
        f'headers = {{ "X-Team" = "{SECRET}" }}',
        f'headers = {{\n  "X-Team" = "{SECRET}",\n  "Y" = "{SECRET}"\n}}',
        f'[hosts.cloud.headers]\n"X-Team" = "{SECRET}"',
        f'[agents.a.env]\nDATABASE = "{SECRET}"',
        f'env = ["A={SECRET}",\n"B={SECRET}"]',
        f'password = """\n{SECRET}\n"""',
        f'x = {{ type = "researcher", env = {{ A = "{SECRET}" }} }}',
        f'x = {{ type = "researcher", env = {{ A = 1,\n  B = "{SECRET}" }},\n  slots = 2 }}',
        f'members = [ {{ headers = {{ A = "{SECRET}" }} }} ]',
        f'members = [\n  {{ name = "a", headers = {{\n A = "{SECRET}"\n }} }}\n]',
        f'x = {{ api_key = ["{SECRET}"] }}',
        f'"api\\u005fkey" = "{SECRET}"',
        f'[hosts."a]b".env]\nA = "{SECRET}"',
        f'[x]\ny = {{ kind = "a", secret = "{SECRET}" }}',
        f'store = "postgresql://me:{SECRET}@db/x"',
        f'store = "postgresql://{SECRET}@db/x"',
        f'url = "https://a.example/v1?api_key={SECRET}&x=1"',
        f'argv = ["curl", "-H", "Authorization: Bearer {SECRET}"]',
        'argv = ["x", "sk-hunter2-and-more"]',
    ],
)
def test_what_could_be_a_secret_is_masked(text: str) -> None:
    shown = masked(text)
    assert SECRET not in shown
    assert MASK in shown
    assert shown.count("\n") == text.count("\n")


@pytest.mark.parametrize(
    "value",
    [
        f"postgresql://me:{SECRET}@db/q",
        f"postgresql://me:with@and/{SECRET}@db/q",
        f"redis://:{SECRET}@cache",
        f"postgresql://db/q?password={SECRET}",
        f"postgresql://db/q?sslmode=require&sslpassword={SECRET}",
        f"host=db password={SECRET}",
        f"host=db password = '{SECRET}'",
        f"Server=db;Pwd={SECRET}",
        f"--proxy http://me:{SECRET}@proxy",
        f"me:{SECRET}@proxy:3128",
        f"https://{SECRET}@git.example/x",
        f"curl -u me:{SECRET} x",
        f"--password {SECRET}",
        f"-Dkey=1 --api-key={SECRET}",
        f"PGPASSWORD={SECRET}",
        f"PGPASSWORD=password={SECRET}",
        f'{{"user": "me", "password": "{SECRET}"}}',
        f"Authorization: Basic {SECRET}",
        "run sk-hunter2-and-more",
    ],
)
def test_values_that_could_give_a_secret_away(value: str) -> None:
    assert may_hold_secret(value)


@pytest.mark.parametrize(
    "value",
    [
        "UTC",
        "",
        "http://[",
        "PYTHONPATH=/srv/lib:/opt/python@3.11/lib:/token:/x",
        "LD_LIBRARY_PATH=${LD_LIBRARY_PATH}:/opt/cuda/lib64",
        "postgresql://penstock@db:5432/q?sslmode=require&passfile=/run/pass&sslkey=/run/tls.key",
        "postgresql://one:5432,two:5432/q",
        "http://proxy:3128/path",
        "password_file=/run/secrets/db",
        "--no-password --port 5432",
        "git@example.org:team/repository",
        "the token is elsewhere",
        "data/my queue.db",
    ],
)
def test_values_that_may_be_read_by_others(value: str) -> None:
    """What must be there before Python starts would come too late by a letter of ours."""
    assert not may_hold_secret(value)


def test_the_rest_is_shown_as_it_is() -> None:
    text = (
        'store = "penstock.db"\n[hosts.surtr]\nurl = "http://surtr:1234/v1"\nmodel = "qwen2.5-32b-instruct"\n'
        'key_env = "CLOUD_KEY"\nkey_file = "~/.keys/cloud"\nmax_tokens = 2048\n'
        "rate = { requests_per_min = 60, tokens_per_min = 90000 }\n[hosts.next]\n"
        'argv = ["echo", "a"]\n# a comment\n'
    )
    assert masked(text) == text


def test_a_table_after_a_masked_one_is_shown_again() -> None:
    shown = masked('[hosts.a.env]\nX = "1"\n[hosts.b]\nslots = 2')
    assert shown == f"[hosts.a.env]\nX = {MASK}\n[hosts.b]\nslots = 2"


@pytest.mark.parametrize(
    "name", ["max_tokens", "tokens_per_min", "key_env", "key_file", "monkey", "keep_days"]
)
def test_names_that_only_sound_so_are_shown(name: str) -> None:
    assert not is_secret_name(name)


@given(st.text(max_size=200))
def test_whatever_the_text_is_it_keeps_its_lines(text: str) -> None:
    assert masked(text).count("\n") == text.count("\n")


@given(st.text(max_size=60), st.sampled_from(["api_key", "token", "password", "client-secret"]))
def test_no_text_before_it_uncovers_a_secret(before: str, name: str) -> None:
    line = f'{name} = "{SECRET}"'
    assert SECRET not in masked(f"{before}\n{line}")
