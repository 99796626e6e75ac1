"""A Prometheus that scrapes."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tests.waiting import wait_for

Sample = tuple[dict[str, str], float]


class Prometheus:
    """Scrapes these targets every second, by job."""

    def __init__(self, folder: Path, targets: dict[str, list[str]], rules: str = "", more: str = "") -> None:
        """``more``: lines for each job, indented by four."""
        folder.mkdir(parents=True, exist_ok=True)
        jobs = "".join(
            f"  - job_name: {job}\n    static_configs: [{{targets: {json.dumps(listed)}}}]\n{more}"
            for job, listed in targets.items()
        )
        (folder / "rules.yml").write_text(rules)
        config = folder / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n"
            + ("rule_files: [rules.yml]\n" if rules else "")
            + f"scrape_configs:\n{jobs}"
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._log = folder / "prometheus.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    shutil.which("prometheus") or "prometheus",
                    f"--config.file={config}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdout=log,
                stderr=log,
            )

    def query(self, expression: str) -> list[Sample]:
        """Labels and value of each series that an expression gives now; none before Prometheus has started."""
        url = f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                found: Any = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return []
            raise AssertionError(f"{expression}: {error.read().decode()}") from error
        except urllib.error.URLError:
            assert self.process.poll() is None, self._log.read_text()
            return []
        return [(one["metric"], float(one["value"][1])) for one in found["data"]["result"]]

    def wait(self, expression: str, seconds: float = 30.0) -> list[Sample]:
        """The series of an expression as soon as there are any."""
        return wait_for(
            lambda: self.query(expression), lambda: f"{expression}; {self._log.read_text()[-1500:]}", seconds, pause=0.2
        )

    def end(self) -> None:
        """Ends it."""
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
