"""What the three exporters print for made-up machines, label for label."""

from __future__ import annotations

MIB = 1 << 20


def dcgm(
    host: str,
    gpus: int = 8,
    *,
    used: dict[int, int] | None = None,
    busy: dict[int, int] | None = None,
    pods: dict[int, str] | None = None,
    jobs: dict[int, str] | None = None,
    label: str = "Hostname",
    model: str = "NVIDIA H100 80GB HBM3",
) -> str:
    """dcgm-exporter with its default counters. ``used``: MiB by GPU."""
    lines = []
    for gpu in range(gpus):
        labels = (
            f'gpu="{gpu}",UUID="GPU-{host}-{gpu}",pci_bus_id="00000000:{gpu + 1:02X}:00.0",device="nvidia{gpu}",'
            f'modelName="{model}",{label}="{host}",DCGM_FI_DRIVER_VERSION="580.95.05"'
        )
        if jobs and gpu in jobs:
            labels += f',hpc_job="{jobs[gpu]}"'
        if pods is not None:
            pod = pods.get(gpu, "")
            labels += f',container="{"main" if pod else ""}",namespace="{"ml" if pod else ""}",pod="{pod}"'
        held = (used or {}).get(gpu, 4)
        util = (busy or {}).get(gpu, 0)
        values = {
            "SM_CLOCK": 1980 if util else 345,
            "MEM_CLOCK": 2619,
            "MEMORY_TEMP": 9223372036854775794,
            "GPU_TEMP": 35 + util // 3,
            "POWER_USAGE": 70.5 + 6 * util,
            "TOTAL_ENERGY_CONSUMPTION": 2147483640 + gpu,
            "GPU_UTIL": util,
            "MEM_COPY_UTIL": util // 2,
            "ENC_UTIL": 2147483632,
            "DEC_UTIL": 0,
            "XID_ERRORS": 0,
            "FB_FREE": 81559 - 600 - held,
            "FB_USED": held,
            "FB_RESERVED": 600,
        }
        lines += [f"DCGM_FI_DEV_{name}{{{labels}}} {value}" for name, value in values.items()]
    return "\n".join(lines)


def nvidia_smi(gpus: int = 2, *, first: str = "4080", used: int = 300, busy: float = 0.0) -> str:
    """nvidia_gpu_exporter: UUIDs without prefix, no host."""
    lines = ["nvidia_smi_last_collect_success 1"]
    for gpu in range(gpus):
        uuid = f"{first}{gpu}"
        lines.append(
            f'nvidia_smi_gpu_info{{uuid="{uuid}",name="NVIDIA GeForce RTX 4080 SUPER",driver_version="595.71.05",'
            f'pci_bus_id="00000000:0{gpu + 1}:00.0",index="{gpu}"}} 1'
        )
        values = {
            "memory_total_bytes": 16376 * MIB,
            "memory_used_bytes": used * MIB,
            "memory_free_bytes": (16376 - used - 400) * MIB,
            "memory_reserved_bytes": 400 * MIB,
            "utilization_gpu_ratio": busy,
            "temperature_gpu": 41,
            "power_draw_watts": 18.2,
            "clocks_current_sm_clock_hz": 2.1e8,
            "pstate": 8,
        }
        lines += [f'nvidia_smi_{name}{{uuid="{uuid}"}} {value}' for name, value in values.items()]
    return "\n".join(lines)


def gpuwatch(
    host: str,
    gpus: int = 8,
    *,
    owners: dict[int, str] | None = None,
    findings: dict[int, tuple[str, str]] | None = None,
    age: float = 0.4,
    lost: int | None = None,
    model: str = "NVIDIA A100-SXM4-80GB",
) -> str:
    """``gpuwatch exporter``. ``owners``: user by GPU; ``findings``: cause and severity by GPU."""
    lines = [f'gpuwatch_snapshot_age_seconds{{host="{host}"}} {age}', f'gpuwatch_driver_answering{{host="{host}"}} 1']
    lines.append(f'gpuwatch_driver_info{{host="{host}",version="580.95.05",cuda_version="13.0"}} 1')
    for gpu in range(gpus):
        own = f'uuid="GPU-{host}-{gpu}",gpu="{gpu}",host="{host}"'
        lines.append(f'gpuwatch_gpu_info{{{own},name="{model}",pci_bus_id="0000:0{gpu + 1}:00.0",mig="disabled"}} 1')
        if gpu == lost:
            lines.append(f'gpuwatch_gpu_state{{{own},state="lost"}} 1')
            lines.append(f"gpuwatch_gpu_free{{{own}}} 0")
        else:
            user = (owners or {}).get(gpu)
            used = 30 << 30 if user else 450 << 20
            values = {
                "memory_total_bytes": 80 << 30,
                "memory_used_bytes": used,
                "memory_free_bytes": (80 << 30) - used - (600 << 20),
                "memory_reserved_bytes": 600 << 20,
                "utilization_ratio": 0.93 if user else 0,
                "temperature_celsius": 62 if user else 33,
                "power_draw_watts": 390.5 if user else 58.1,
                "performance_state": 0 if user else 8,
                "state": 1,
                "free": int(not user),
            }
            for name, value in values.items():
                more = ',state="ok"' if name == "state" else ""
                lines.append(f"gpuwatch_gpu_{name}{{{own}{more}}} {value}")
            if user:
                lines.append(f'gpuwatch_gpu_owner_processes{{{own},user="{user}"}} 2')
                lines.append(f'gpuwatch_gpu_owner_memory_bytes{{{own},user="{user}"}} {used - (450 << 20)}')
        for cause, severity in [findings[gpu]] if findings and gpu in findings else []:
            lines.append(f'gpuwatch_finding{{{own},cause="{cause}",severity="{severity}",certainty="fact"}} 1')
    return "\n".join(lines)
