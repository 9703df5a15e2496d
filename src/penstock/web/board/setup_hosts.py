"""The hosts of the config and how they are, as nodes of the set-up page; and all else that was tried."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.config import Config
from penstock.config.masking import masked
from penstock.config.takes import takes
from penstock.config.wording import some
from penstock.model import ANY_MODEL, Host
from penstock.setup.checkup import Finding
from penstock.store.base import HostStatus
from penstock.web.board.checkups import Checkup
from penstock.web.board.sheet import Node, badge, moment, node, queue_link, rows_of
from penstock.web.board.words import counted

_LOOKS = {"well": ("up", "well"), "warning": ("paused", "note"), "wrong": ("down", "wrong")}
_MOST_MODELS = 3


def hosts(config: Config, checkup: Checkup, standing: Mapping[str, HostStatus]) -> Node:
    heads = ("Host", "Type", "Address", "Models", ">Slots", "Takes", "In use", "Tried now")
    rows = [_row(host, config, checkup, standing.get(host.name)) for host in config.plant.hosts]
    return rows_of("Hosts of the config", heads, rows)


def _row(host: Host, config: Config, checkup: Checkup, standing: HostStatus | None) -> Node:
    return node(
        "tr",
        node("th", queue_link(host.name, host=host.name), scope="row"),
        node("td", host.type),
        node("td", node("code", address(host, config))),
        node("td", *_models(host)),
        node("td", _slots(host, standing), class_="num"),
        node("td", takes(host), title=", ".join(host.serves)),
        node("td", *_standing(standing)),
        node("td", *_tried(checkup.hosts.get(host.name), checkup), class_="wide"),
        key=host.name,
    )


def address(host: Host, config: Config) -> str:
    """Where it is, without anything that could be secret."""
    options = host.options
    if isinstance(url := options.get("url"), str):
        return masked(url)
    if host.type == "agent":
        agent = config.agents.get(str(options.get("agent", host.name)))
        return "" if agent is None else (agent.image or agent.folder or "")
    if host.type == "command":
        argv = options.get("argv")
        return str(argv[0]) if isinstance(argv, list | tuple) and argv else ""
    if host.type == "python":
        calls = options.get("calls")
        return str(options.get("call") or ", ".join(map(str, calls or ())))
    return {"local": "a process of its own", "council": "its members' hosts"}.get(
        host.type, "in this process"
    )


def _models(host: Host) -> list[Node]:
    named = [
        one for one in dict.fromkeys((host.model, *host.models)) if one is not None and one not in host.serves
    ]
    if not named:
        return [node("span", "–", class_="soft")]
    words = ["any other" if one == ANY_MODEL else one for one in named]
    return [node("span", some(words, _MOST_MODELS), title=", ".join(words))]


def _slots(host: Host, standing: HostStatus | None) -> str:
    if host.auto is not None:
        now = host.slots if standing is None else standing.slots
        return f"{now} ({host.auto.min}–{host.auto.max})"
    return str(host.slots if standing is None else standing.slots)


def _standing(standing: HostStatus | None) -> list[Node]:
    if standing is None:
        return [badge("unknown", "not used yet")]
    return [node("span", badge(standing.state), title=standing.detail or None)]


def _tried(found: Finding | None, checkup: Checkup) -> list[Node]:
    if found is None:
        if checkup.goes_on:
            return [badge("starting", "trying…")]
        return [badge("unknown", "not tried")]
    look, word = _LOOKS[found.state]
    return [badge(look, word), " ", found.detail]


# ---- everything else


def others(checkup: Checkup) -> Node | None:
    if checkup.trouble:
        return node("p", checkup.trouble, class_="wrong", role="alert")
    # The server is the one that shows this page: whether its address is free or taken says nothing.
    tried = [one for one in checkup.others if one.what != "server"]
    if not tried:
        return None
    heads = ("", "What", "Name", "Detail")
    rows = [
        node(
            "tr",
            node("td", badge(*_LOOKS[one.state])),
            node("td", one.what),
            node("td", node("code", masked(one.name))),
            node("td", one.detail, class_="wide"),
            key=f"{place}",
        )
        for place, one in enumerate(tried)
    ]
    return rows_of("Everything else that was tried", heads, rows)


def how_it_went(checkup: Checkup) -> Node:
    if checkup.begun_at is None:
        return node("p", "Nothing has been tried yet.", class_="soft", role="status")
    tried, wrong = len(checkup.hosts), sum(one.state == "wrong" for one in checkup.hosts.values())
    if checkup.goes_on:
        return node("p", f"Trying… {tried} have answered so far.", class_="soft", role="status")
    wrong += sum(one.state == "wrong" for one in checkup.others if one.what != "server")
    told = "All is well" if not wrong else counted(wrong, "problem")
    return node(
        "p",
        f"{told}. Tried at ",
        moment(checkup.ended_at or checkup.begun_at),
        ".",
        class_="soft",
        role="status",
    )
