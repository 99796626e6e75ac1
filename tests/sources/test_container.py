"""Where gpuwatch itself runs: a container, Windows' Linux, or neither; said in the host of a snapshot."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from gpuwatch.machine.sources import system_and_driver_facts
from gpuwatch.machine.sources.host_reader import HostReader


class Name:
    release = "5.15.153.1-microsoft-standard-WSL2"


def test_kubernetes_says_so_in_the_environment() -> None:
    assert system_and_driver_facts.container_kind({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}) == "kubernetes"


def test_wsl_counts_where_no_container_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", Name)
    monkeypatch.setattr(system_and_driver_facts, "_find_container_kind", lambda base, environment: None)
    assert system_and_driver_facts.container_kind({}) == "wsl"
    monkeypatch.setattr(system_and_driver_facts, "_find_container_kind", lambda base, environment: "docker")
    assert system_and_driver_facts.container_kind({}) == "docker"


def test_the_host_knows_from_its_second_reading_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Mapping[str, str]] = []

    def container(environment: Mapping[str, str]) -> str:
        asked.append(environment)
        return "podman"

    monkeypatch.setattr(system_and_driver_facts, "container_kind", container)
    reader = HostReader()
    assert [reader.read()[0].container for _ in range(3)] == [None, "podman", "podman"]
    assert len(asked) == 1
