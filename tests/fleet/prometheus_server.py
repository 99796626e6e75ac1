"""A server that answers as Prometheus does, for the few forms of queries that gpuwatch sends.

It holds series, evaluates matchers, ``by`` and ``or``, and nothing else. Tests marked ``prometheus`` ask a real one the
same questions.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

Labels = Mapping[str, str]
Series = tuple[dict[str, str], str]

_MATCHER = re.compile(r'(\w+)(=~|!=|=)"((?:[^"\\]|\\.)*)"')
_SELECTOR = re.compile(r"^(\w*)(?:\{(.*)\})?$")
_BY = re.compile(r"^(max|count|group) by \(([^)]*)\) \((.*)\)$", re.DOTALL)
_OVER = re.compile(r"^last_over_time\((.*)\[1h\]\)$", re.DOTALL)
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")


def exposition(text: str, **target: str) -> list[Series]:
    """The series of a scrape, with the target's labels; its own of the same name become ``exported_``."""
    found = []
    for line in text.splitlines():
        match = _SAMPLE.match(line.strip())
        if match is None:
            continue
        own = {name: value for name, _, value in _MATCHER.findall(match[2] or "")}
        labels = {f"exported_{name}" if name in target else name: value for name, value in own.items()}
        found.append(({"__name__": match[1], **labels, **target}, match[3]))
    return found


class FakePrometheus:
    """Series by time of the scrape; ``past``: those of the last hour that are gone."""

    def __init__(self) -> None:
        self.series: list[Series] = []
        self.past: list[Series] = []
        self.down: list[dict[str, str]] = []
        self.pods: list[dict[str, str]] = []
        """Labels of targets that are pods."""
        self.queries: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.answer: Callable[[str], bytes | tuple[int, bytes]] | None = None
        """Instead of a proper answer."""
        self.user = ""
        self.url = ""

    def evaluate(self, query: str) -> list[Series]:
        """The result of an instant query."""
        if query == "up == 0":
            return [({"__name__": "up", **labels}, "0") for labels in self.down]
        if query.startswith("group by (namespace,pod) (up{"):
            return [(labels, "1") for labels in self.pods]
        by = _BY.match(query)
        if by is not None:
            keep = [name.strip() for name in by[2].split(",")]
            grouped: dict[tuple[tuple[str, str], ...], list[float]] = {}
            for labels, value in self.evaluate(by[3]):
                key = tuple((name, labels[name]) for name in keep if labels.get(name))
                grouped.setdefault(key, []).append(float(value))
            how = {"max": max, "count": len, "group": lambda values: 1}[by[1]]
            return [(dict(key), f"{how(values):.17g}") for key, values in grouped.items()]
        over = _OVER.match(query)
        if over is not None:
            return [one for one in (*self.series, *self.past) if _selected(over[1], one[0])]
        parts = query.split(" or ")
        return [one for one in self.series if any(_selected(part, one[0]) for part in parts)]

    def reply(self, path: str) -> tuple[int, bytes]:
        """Status and body."""
        parts = urlsplit(path)
        asked = parse_qs(parts.query)
        query = asked["query"][0]
        self.queries.append(query)
        if self.answer is not None:
            answer = self.answer(query)
            return answer if isinstance(answer, tuple) else (200, answer)
        now = time.time()
        if parts.path.endswith("/query_range"):
            start, end, step = (float(asked[name][0]) for name in ("start", "end", "step"))
            times = [start + n * step for n in range(int((end - start) / step) + 1)]
            data: list[object] = [
                {"metric": labels, "values": [[at, value] for at in times]} for labels, value in self.evaluate(query)
            ]
            kind = "matrix"
        else:
            data = [{"metric": labels, "value": [now, value]} for labels, value in self.evaluate(query)]
            kind = "vector"
        return 200, json.dumps({"status": "success", "data": {"resultType": kind, "result": data}}).encode()


@lru_cache(maxsize=256)
def _matchers(selector: str) -> list[tuple[str, str, str, re.Pattern[str]]]:
    match = _SELECTOR.match(selector.strip())
    assert match is not None, selector
    found = [(name, sign, wanted, re.compile(wanted)) for name, sign, wanted in _MATCHER.findall(match[2] or "")]
    return [("__name__", "=", match[1], re.compile("")), *found] if match[1] else found


def _selected(selector: str, labels: Labels) -> bool:
    for name, sign, wanted, pattern in _matchers(selector):
        value = labels.get(name, "")
        if sign == "=~" and pattern.fullmatch(value) is None:
            return False
        if (sign == "=" and value != wanted) or (sign == "!=" and value == wanted):
            return False
    return True


@contextmanager
def served(prometheus: FakePrometheus | None = None) -> Iterator[FakePrometheus]:
    """Serves it on a free port of this machine."""
    fake = prometheus or FakePrometheus()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fake.headers.append(dict(self.headers))
            if fake.user:
                wanted = "Basic " + base64.b64encode(fake.user.encode()).decode()
                if self.headers.get("Authorization") != wanted:
                    self.send_error(401)
                    return
            status, body = fake.reply(self.path)
            packed = "gzip" in self.headers.get("Accept-Encoding", "")
            body = gzip.compress(body, 1) if packed else body
            self.send_response(status)
            if packed:
                self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            pass  # a client that left

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
