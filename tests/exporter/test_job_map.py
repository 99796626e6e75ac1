"""Files for dcgm-exporter that tell which Slurm jobs use which GPU."""

from __future__ import annotations

from pathlib import Path

from gpuwatch.share.exporter.slurm_job_map import SlurmJobMap
from tests.exporter.machines import device, process, snapshot


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_file_for_each_gpu_with_a_job_in_each_line(tmp_path: Path) -> None:
    first, second = device(0), device(1)
    rows = (
        process(1, first, container="slurm job 4712"),
        process(2, first, container="slurm job 999"),
        process(3, first, container="slurm job 4712"),
        process(4, second, container="pod train-0"),
    )
    (tmp_path / "1").write_text("17\n")  # of a job that ended while nobody looked
    (tmp_path / "7").write_text("18\n")
    job_map = SlurmJobMap(tmp_path)
    job_map.check_writable()
    job_map.update(snapshot(first, second, processes=rows))
    assert contents(tmp_path) == {"0": "999\n4712\n", "7": "18\n"}
    assert (tmp_path / "0").stat().st_mode & 0o777 == 0o644
    job_map.update(snapshot(first, second, processes=rows[3:]))
    assert contents(tmp_path) == {"7": "18\n"}


def test_files_go_with_who_keeps_them(tmp_path: Path) -> None:
    gpu = device()
    job_map = SlurmJobMap(tmp_path)
    job_map.update(snapshot(gpu, processes=(process(1, gpu, container="slurm job 1"),)))
    before = (tmp_path / "0").stat().st_mtime_ns
    job_map.update(snapshot(gpu, processes=(process(1, gpu, container="slurm job 1"),)))
    assert (tmp_path / "0").stat().st_mtime_ns == before
    job_map.remove_files()
    assert contents(tmp_path) == {}
