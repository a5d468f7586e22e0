"""A Prometheus server of the tests' own, with the repository's configuration, on a free port."""

import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any, Self

import httpx
import yaml

from tests.service.asking import until

MISSING = "no Prometheus on this machine; install it (apt-get install prometheus)"
DEPLOY = Path(__file__).parents[2] / "deploy"


def installed(program: str = "prometheus") -> Path | None:
    """Where a program of Prometheus is."""
    found = shutil.which(program)
    return Path(found) if found else None


def write_config(folder: Path, target: str, key_file: Path) -> Path:
    """The repository's configuration and rules, for another address and key, and looking every second."""
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    (job,) = config["scrape_configs"]
    job["authorization"]["credentials_file"] = str(key_file)
    job["static_configs"] = [{"targets": [target]}]
    for rules in config["rule_files"]:
        shutil.copy(DEPLOY / rules, folder)
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    return file


class PrometheusServer:
    """A server in a process of its own. Use as a context manager."""

    def __init__(self, program: Path, folder: Path, config: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self._command = [str(program), f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}"]
        self._command += [f"--web.listen-address={address}", "--log.level=warn"]
        self._log = folder / "prometheus.log"
        self._http = httpx.Client(base_url=f"http://{address}", trust_env=False, timeout=30)

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        try:
            until(self._is_ready, "Prometheus answers")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()
        self._process.terminate()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _is_ready(self) -> bool | None:
        assert self._process.poll() is None, self._log.read_text()
        try:
            return True if self._http.get("/-/ready").status_code == 200 else None
        except httpx.TransportError:
            return None

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer, which has to be a success."""
        answer = self._http.get(f"/api/v1/{path}", params=parameters)
        assert answer.json()["status"] == "success", f"{parameters}: {answer.text}"
        return answer.json()["data"]

    def values(self, query: str) -> list[float]:
        """The values of each series that a query has now."""
        return [float(series["value"][1]) for series in self.get("query", query=query)["result"]]

    def wait_for(self, query: str, least: float) -> None:
        """Return when the sum of a query's series has come to so much."""
        until(lambda: sum(self.values(query)) >= least, f"{query} >= {least}")
