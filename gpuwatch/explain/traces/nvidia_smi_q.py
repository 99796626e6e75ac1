"""``nvidia-smi -q`` and ``-q -x`` in a file or log, as a snapshot of the machine.

Both print the same tree, as indented text or as XML, with names that differ by driver: :mod:`.nvidia_smi_q_fields` has
them. The XML is read tag by tag: no entity is expanded and nothing is fetched. What says N/A is missing, never 0.
Layouts: drivers 352 to 610.
"""

from __future__ import annotations

import datetime
import html
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from gpuwatch.core import input_size_limits
from gpuwatch.core.model.metrics import BY_ID, Unit
from gpuwatch.core.model.reading import Missing, Value
from gpuwatch.core.model.snapshot import MIG_READINGS, Device, Driver, Host, MigInstance, Process, Snapshot
from gpuwatch.core.parsing import parse_integer
from gpuwatch.explain.traces.nvidia_smi_q_fields import (
    CLOCK_REASON_IDS,
    CLOCK_REASON_PATTERN,
    ECC_ERROR_SUFFIXES,
    ECC_SUMS,
    FIELDS,
    VALUE_NAMES,
    VERBATIM_METRIC_PREFIXES,
)

_MAX_GPUS, _MAX_ROWS, _MAX_FIELDS = 256, 2000, 1500
_MAX_VALUE_CHARS, _MAX_DEPTH = input_size_limits.NVIDIA_SMI.bytes, input_size_limits.NVIDIA_SMI.depth
_TEXT_HEAD, _XML_HEAD = "NVSMI LOG", "<nvidia_smi_log"
_XML_TAG = re.compile(r"<(/?)([A-Za-z]\w{0,80})([^<>]{0,200}?)(/?)>([^<]{0,400})")
_XML_LEAF = re.compile(r"\s*<([A-Za-z]\w{0,80})>([^<]{0,400})</\1>\s*$")
"""What nearly every line of XML is: one element with its text."""
_MAX_LABEL_CHARS, _MAX_TEXT_VALUE_CHARS = 120, 400
_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])$")
_HEAD_FIELDS = frozenset(
    {"timestamp", "driver_version", "cuda_version", "kmd_version", "cuda_umd_version", "attached_gpus"}
)
_NUMBER = re.compile(r"(-?\d{1,15}(?:\.\d{1,6})?)\s*(KiB|MiB|GiB|KB/s|MB/s|us|mV|MHz|W|C|%|x)?\b")
_FACTORS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "KB/s": 1000, "MB/s": 1000_000}
_NOT_SUPPORTED = Missing("not_supported", detail="nvidia-smi says N/A")
_NOT_PRINTED = Missing("unknown", detail="not in the output of nvidia-smi -q")
_DEVICE_LOST = Missing("device_lost", detail="nvidia-smi says that the GPU is lost or requires a reset")
_FAILED = Missing("failed", detail="nvidia-smi says Unknown Error")
_LOST_TEXTS = {"gpu is lost": "lost", "gpu requires reset": "reset-required"}
"""NVML's texts of the errors that make a GPU unusable: nvidia-smi prints them in place of values."""
_FAILED_TEXT = "unknown error"
_MISSING_TEXTS = frozenset({"", "n/a", "[n/a]", "none yet", "not supported", "[not supported]"})
_DEPRECATED_TEXT = "requested functionality"


class SmiQueryReader:
    """Takes the lines of a log; keeps the last complete output in it."""

    def __init__(self) -> None:
        self._format = ""
        self._tree = _Tree()
        self._indents: list[int] = []
        self._path: list[str] = []
        self._path_below_gpu: list[str] | None = None
        self._base_indent = 0
        self._last_tree: _Tree | None = None

    def take(self, line: str) -> bool:
        """Whether the line belongs to such an output."""
        if self._format != "xml" and _TEXT_HEAD in line and "====" in line:
            self._begin_output("text")
            self._base_indent = len(line) - len(line.lstrip(" "))
            return False  # the log's rules know that the driver answered
        if not self._format:
            if _XML_HEAD not in line:
                return False
            self._begin_output("xml")
        return self._tag_line(line) if self._format == "xml" else self._text_line(line)

    def snapshot(self) -> Snapshot | None:
        """The last output that has a GPU."""
        self._end_output()
        return None if self._last_tree is None else self._last_tree.snapshot()

    def _begin_output(self, kind: str) -> None:
        self._end_output()
        self._format, self._tree, self._indents, self._path, self._path_below_gpu = kind, _Tree(), [], [], None

    def _end_output(self) -> None:
        if self._format and any(gpu.fields for gpu in self._tree.gpus):
            self._last_tree = self._tree
        self._format = ""

    def _tag_line(self, line: str) -> bool:
        path = self._path
        leaf = _XML_LEAF.match(line)
        if leaf is not None and leaf[1] != "gpu" and 0 < len(path) < _MAX_DEPTH:
            if self._path_below_gpu is None:
                self._path_below_gpu = _below_gpu(path)
            if text := leaf[2].strip():
                self._tree.set_value([*self._path_below_gpu, leaf[1]], html.unescape(text))
            return True
        self._path_below_gpu = None
        for match in _XML_TAG.finditer(line):
            closing, name, attributes, empty, text = match.groups()
            if closing:
                if name == "nvidia_smi_log":
                    self._end_output()
                    return True
                while path and path.pop() != name:
                    pass
                continue
            if name == "gpu":
                self._tree.add_gpu(attributes.partition('"')[2].partition('"')[0])
            if empty:
                continue
            if len(path) < _MAX_DEPTH:
                path.append(name)
            inside = _below_gpu(path)
            if inside == ["processes", "process_info"]:
                self._tree.add_process()
            if inside and text.strip():
                self._tree.set_value(inside, html.unescape(text))
        return True

    def _text_line(self, line: str) -> bool:
        line = line.rstrip()
        if not line:
            return True
        if line.startswith("GPU ", self._base_indent) and (gpu := _GPU.match(line, self._base_indent)):
            self._tree.add_gpu(gpu[1])
            self._indents, self._path = [], []
            return True
        label, colon, value = line.partition(":")
        indent, name = _label(label) if len(label) <= _MAX_LABEL_CHARS else (-1, "")
        indent -= self._base_indent
        if not name or indent < 0 or (value and value[0] != " ") or len(value) > _MAX_TEXT_VALUE_CHARS:
            self._end_output()
            return False
        if indent == 0:
            if name not in _HEAD_FIELDS:
                self._end_output()
                return False
            self._tree.set_value([name], value)
            return True
        indents, path = self._indents, self._path
        while indents and indents[-1] >= indent:
            indents.pop()
            path.pop()
        if len(path) < _MAX_DEPTH:
            indents.append(indent)
            path.append(name)
        if colon:
            self._tree.set_value(path, value)
        return True


@lru_cache(1024)
def _label(text: str) -> tuple[int, str]:
    """Indentation and name of what precedes a colon; the name is empty if it is none."""
    name = text.strip()
    indent = len(text) - len(text.lstrip(" "))
    return indent, name.lower().replace(" ", "_") if text.startswith(name, indent) else ""


def _below_gpu(path: list[str]) -> list[str]:
    return path[path.index("gpu") + 1 :] if "gpu" in path else path[1:]


class _Gpu:
    def __init__(self, bus: str) -> None:
        self.bus = bus
        self.fields: dict[str, str] = {}
        self.instances: list[dict[str, str]] = []
        self.processes: list[dict[str, str]] = []


class _Tree:
    """What one output says."""

    def __init__(self) -> None:
        self.head: dict[str, str] = {}
        self.gpus: list[_Gpu] = []

    def add_gpu(self, bus: str) -> None:
        if len(self.gpus) < _MAX_GPUS:
            self.gpus.append(_Gpu(bus[:_MAX_VALUE_CHARS]))

    def add_process(self) -> None:
        if self.gpus and len(self.gpus[-1].processes) < _MAX_ROWS:
            self.gpus[-1].processes.append({})

    def set_value(self, path: list[str], value: str) -> None:
        value = value.strip()[:_MAX_VALUE_CHARS]
        if not self.gpus:
            self.head.setdefault(path[-1], value)
            return
        gpu, last = self.gpus[-1], path[-1]
        if path[0] == "processes":
            # Text has no row of its own: the instance's numbers precede the process.
            if (last == "gpu_instance_id" and len(path) == 2) or not gpu.processes:
                self.add_process()
            if gpu.processes:
                gpu.processes[-1].setdefault("pid" if last == "process_id" else last, value)
        elif path[0] in ("mig_device", "mig_devices"):
            if last == "index" and len(gpu.instances) < _MAX_ROWS:
                gpu.instances.append({})
            if gpu.instances:
                gpu.instances[-1].setdefault("/".join(path[-2:]), value)
        elif path[0] != "supported_clocks" and len(gpu.fields) < _MAX_FIELDS:
            if path[0] in ("power_readings", "gpu_power_readings"):
                path = ["power", *path[1:]]
            gpu.fields.setdefault("/".join(path), value)

    def snapshot(self) -> Snapshot:
        """The snapshot of all GPUs described by more than their address."""
        gpus = [gpu for gpu in self.gpus if gpu.fields]
        devices: list[Device] = []
        processes: list[Process] = []
        seen: set[str] = set()
        for index, gpu in enumerate(gpus):
            device = _device(index, gpu, seen)
            seen.add(device.uuid)
            devices.append(device)
            processes += _processes(gpu, device)
        # 610 prints notes behind the versions that it will rename.
        version, cuda = ((self.head.get(f"{name}_version") or "").partition(" [")[0] for name in ("driver", "cuda"))
        return Snapshot(
            taken_at=_time(self.head.get("timestamp", "")),
            took_seconds=0.0,
            simulated=False,
            driver=Driver(version=_text_or_none(version), cuda_version=_text_or_none(cuda), nvml_version=None),
            devices=tuple(devices),
            processes=tuple(processes),
            host=Host(hostname=None, cpu_percent=None, cpu_count=None, memory_used_bytes=None, memory_total_bytes=None),
        )


def _time(text: str) -> datetime.datetime:
    try:
        found = datetime.datetime.strptime(" ".join(text.split()), "%a %b %d %H:%M:%S %Y")
    except ValueError:
        return datetime.datetime.now(datetime.UTC)
    return found.replace(tzinfo=datetime.UTC)


def _text_or_none(text: str | None) -> str | None:
    if text is None or text.lower() in _MISSING_TEXTS or text.lower().startswith(_DEPRECATED_TEXT):
        return None
    return None if _error_text(text) in (*_LOST_TEXTS, _FAILED_TEXT) else text


def _error_text(text: str) -> str:
    return text.lower().strip("[]")


def _device(index: int, gpu: _Gpu, seen: set[str]) -> Device:
    readings: dict[str, Value] = {}
    missing: dict[str, Missing] = {}
    for metric, names in FIELDS.items():
        printed = [gpu.fields[name] for name in names if name in gpu.fields]
        value = next((found for text in printed if (found := _value(metric, text)) is not None), None)
        if value is not None:
            readings[metric] = value
        else:
            missing[metric] = _why_missing(printed, names, gpu.fields)
    derived: dict[str, Value | None] = {"clocks.event_reasons": _clock_event_reasons(gpu.fields)}
    derived |= {metric: _sum(gpu.fields, f"ecc_errors/{kind}", names) for metric, (kind, names) in ECC_SUMS.items()}
    for metric, value in derived.items():
        if value is not None:
            readings[metric] = value
        else:
            missing[metric] = _NOT_SUPPORTED
    uuid = _text_or_none(gpu.fields.get("gpu_uuid") or gpu.fields.get("uuid")) or ""
    bus = gpu.fields.get("pci/bus_id") or gpu.fields.get("pci/pci_bus_id") or gpu.bus
    instances = tuple(_instance(instance) for instance in gpu.instances)
    if instances or readings.get("mig.mode") == "disabled":
        readings["mig.instances"] = len(instances)
    return Device(
        index=index,
        uuid=uuid if uuid and uuid not in seen else f"{uuid or 'GPU'}@{bus.lower()}",
        name=_text_or_none(gpu.fields.get("product_name")) or "unknown GPU",
        pci_bus_id=bus.lower()[-12:],
        state=next((state for text in gpu.fields.values() if (state := _LOST_TEXTS.get(_error_text(text)))), "ok"),
        readings=readings,
        missing=missing,
        mig_instances=instances,
    )


def _why_missing(printed: list[str], names: tuple[str, ...], fields: Mapping[str, str]) -> Missing:
    errors = {_error_text(text) for text in printed}
    if not errors.isdisjoint(_LOST_TEXTS):
        return _DEVICE_LOST
    if _FAILED_TEXT in errors:
        return _FAILED
    return _NOT_SUPPORTED if printed or _section_is_missing(names, fields) else _NOT_PRINTED


def _section_is_missing(names: tuple[str, ...], fields: Mapping[str, str]) -> bool:
    """Whether a whole section says N/A: ``Remapped Rows : N/A``."""
    return any((part := name.rpartition("/")[0]) in fields and _text_or_none(fields[part]) is None for name in names)


def _value(metric: str, text: str) -> Value | None:
    plain = _text_or_none(text)
    if plain is None:
        return None
    spec = BY_ID[metric]
    if spec.unit is Unit.NAME:
        if metric.startswith(VERBATIM_METRIC_PREFIXES):
            return VALUE_NAMES.get(metric, {}).get(plain.lower(), plain)
        return VALUE_NAMES.get(metric, {}).get(plain.lower(), re.sub("[ _]", "-", plain.lower()))
    match = _NUMBER.match(plain)
    if match is None:
        return None
    number = float(match[1]) * _FACTORS.get(match[2] or "", 1)
    return int(number) if number.is_integer() and spec.unit is not Unit.WATT else number


def _sum(fields: Mapping[str, str], section: str, names: tuple[str, ...]) -> int | None:
    """The sum of the counters that the GPU has; None if it has none."""
    printed = [fields.get(f"{section}/{name}{end}", "") for name in names for end in ECC_ERROR_SUFFIXES]
    counts = [int(text) for text in printed if text.isdecimal()]
    return sum(counts) if counts else None


def _clock_event_reasons(fields: Mapping[str, str]) -> str | None:
    active, known = [], False
    for name, text in fields.items():
        match = CLOCK_REASON_PATTERN.match(name)
        if match is not None and text.lower() in ("active", "not active"):
            known = True
            if text.lower() == "active":
                reason = match[1].removeprefix("gpu_")
                active.append(CLOCK_REASON_IDS.get(reason, reason.replace("_", "-")))
    return ("+".join(dict.fromkeys(active)) or "none") if known else None


def _instance(fields: Mapping[str, str]) -> MigInstance:
    by_name = {name.rpartition("/")[2]: text for name, text in fields.items()}
    gi, ci = (parse_integer(by_name.get(f"{kind}_instance_id", "")) for kind in ("gpu", "compute"))
    index = parse_integer(by_name.get("index", "")) or 0
    readings: dict[str, Value] = {}
    for reading in MIG_READINGS:
        kind = reading.removeprefix("memory.").removesuffix("_bytes")
        text = fields.get(f"fb_memory_usage/{kind}") or fields.get(f"shared_fb_memory_usage/{kind}")
        value = _value(reading, text) if text else None
        if value is not None:
            readings[reading] = value
    return MigInstance(
        id=f"{gi}/{ci}" if gi is not None and ci is not None else f"#{index}",
        index=index,
        uuid=None,
        gpu_instance=gi,
        compute_instance=ci,
        profile=None,
        multiprocessors=parse_integer(by_name.get("multiprocessor_count", "")),
        readings=readings,
        missing={reading: _NOT_SUPPORTED for reading in MIG_READINGS if reading not in readings},
    )


def _processes(gpu: _Gpu, device: Device) -> Iterator[Process]:
    for row in gpu.processes:
        pid = parse_integer(row.get("pid", ""))
        if pid is None:
            continue
        gi, ci = (parse_integer(row.get(f"{kind}_instance_id", "")) for kind in ("gpu", "compute"))
        name = _text_or_none(row.get("process_name") or row.get("name"))
        text = row.get("used_memory") or row.get("used_gpu_memory") or ""
        held = _value("memory.used_bytes", text)
        yield Process(
            pid=pid,
            create_time=None,
            user=None,
            command=name,
            name=name.rpartition("/")[2] if name else None,
            type=row.get("type", "C"),
            device_uuid=device.uuid,
            device_index=device.index,
            mig_instance=f"{gi}/{ci}" if gi is not None and ci is not None else None,
            readings={} if held is None else {"gpu_memory_bytes": held},
            missing={"gpu_memory_bytes": _NOT_SUPPORTED} if held is None else {},
        )
