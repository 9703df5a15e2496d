"""The board as people reach it: through a real `serve`, with the board's own process behind it."""

from __future__ import annotations

from pathlib import Path

import httpx
import psutil

from tests.acceptance.serve_rig import PATIENCE_S, Serve, serving, until

CONFIG = """
store = "penstock.db"

[hosts.small]
type = "simulated"
slots = 2
duration_s = 0.0
"""
HTML = {"Accept": "text/html"}


def board_of(server: Serve) -> psutil.Process:
    (found,) = [one for one in psutil.Process(server.pid).children() if "penstock.web.board" in one.cmdline()]
    return found


def folder_of(board: psutil.Process) -> Path:
    """Where it listens."""
    paths = [
        Path(str(one.laddr))
        for one in board.net_connections("unix")
        if one.laddr and "penstock-board" in str(one.laddr)
    ]
    (found,) = {one.parent for one in paths}
    return found


def get(server: Serve, path: str, **headers: str) -> httpx.Response:
    return httpx.get(f"{server.root_url}{path}", headers=headers, timeout=PATIENCE_S, verify=False)


def test_the_board_lives_and_dies_with_its_server(tmp_path: Path) -> None:
    """E7: started by the first look, begun again when it was killed, gone when `serve` is killed."""
    with serving(tmp_path, CONFIG, stops=False) as server:
        assert not psutil.Process(server.pid).children()  # nobody has looked
        found = get(server, "/board/")
        assert found.status_code == 200
        assert "Penstock" in found.text
        assert "'unsafe" not in found.headers["content-security-policy"]
        for path in ("/board/nonsense", "/board/queue/"):
            lost = get(server, path)
            assert (lost.status_code, len(lost.headers.get_list("content-security-policy"))) == (404, 1)
            assert "There is no such page" in lost.text
            assert "<script" not in lost.text
        assert get(server, f"/board/data/timeline?since=1h&after={'9' * 6000}").status_code == 200
        assert "warning" not in server.log
        first = board_of(server)
        folder = folder_of(first)
        assert folder.stat().st_mode & 0o777 == 0o700
        first.kill()
        assert get(server, "/board/queue").status_code == 200
        second = board_of(server)
        folder = folder_of(second)
        server.kill()
        psutil.wait_procs([second], timeout=PATIENCE_S)
        assert not second.is_running()
        until(lambda: not folder.exists(), lambda: f"{folder} is left")


def test_a_server_that_stops_leaves_nothing_of_its_board(tmp_path: Path) -> None:
    """E7: with somebody logged in who follows it, `serve` stops in good order: no process, no folder is left."""
    with serving(tmp_path, CONFIG, stops=False) as server:
        secret = server.command("token", "add", "ada", "--scope", "read").strip()
        with httpx.Client(
            base_url=server.root_url, timeout=PATIENCE_S, verify=False, headers=HTML
        ) as browser:
            led = browser.get("/board/queue")
            assert (led.status_code, led.headers["location"]) == (303, "/board/login?next=/board/queue")
            assert not psutil.Process(server.pid).children()  # for whoever is outside nothing is begun
            browser.get("/board/login")
            form = {"token": secret, "form": browser.cookies["penstock_login"], "next": "/board/queue"}
            done = browser.post("/board/login", data=form, headers={"Origin": server.root_url})
            assert (done.status_code, done.headers["location"]) == (303, "/board/queue")
            page = browser.get("/board/queue", headers={"X-Penstock-Viewer": "00", "Accept": "*/*"})
            assert page.status_code == 200
            assert "ada" in page.text
            board = board_of(server)
            folder = folder_of(board)
            with browser.stream("GET", "/board/live/now") as live:
                assert live.headers["content-type"].startswith("text/event-stream")
                next(live.iter_lines())
                assert server.stop() == 0
    assert not board.is_running()
    assert not folder.exists()
    assert "warning" not in server.log
