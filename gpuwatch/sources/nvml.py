"""The only file that talks to NVML, through NVIDIA's own bindings (``nvidia-ml-py``).

Every answer is a value or a :class:`Missing` with its reason; no NVML error leaves this module as
an exception except :class:`NvmlUnavailable`, which carries the problem for the person. What a
driver lacks is asked once per device list; what failed in passing is asked again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pynvml

from gpuwatch.model.metrics import METRICS, Lane, MetricSpec
from gpuwatch.model.reading import Missing, Value
from gpuwatch.model.snapshot import Driver, MigInstance, Problem, Topology
from gpuwatch.sources import mig, reasons
from gpuwatch.sources.answers import (
    GpuProcess,
    NvmlUnavailable,
    Utilization,
    bus_id,
    decode,
    field_value,
    pick,
)
from gpuwatch.sources.device import ASLEEP, NvmlDevice
from gpuwatch.sources.gpm import TOO_OLD, Activity
from gpuwatch.sources.plans import FIELDS, FieldPlan, Plan, field_plan, plans
from gpuwatch.sources.sleep import Sleep
from gpuwatch.sources.tenants import Tenants
from gpuwatch.sources.topology import Member, topology
from gpuwatch.sources.xids import Xids

_ACTIVITY = tuple(spec for spec in METRICS if spec.lane is Lane.GPM)
_ECC = "nvmlDeviceGetEccMode"
"""The call that tells soonest that a device supports more than it did: it is asked with every slow look."""
_FAST_ALONE = {Lane.FAST}
_ALWAYS = tuple(spec for spec in METRICS if spec.lane is not Lane.GPM)
"""Metrics that are answered for whether anybody opted in or not."""


def _missing(code: int, call: str) -> Missing:
    return reasons.missing(pynvml, code, call)


class Nvml:
    """A session with NVML: opened lazily, kept open, its device list renewed when it changes."""

    def __init__(self) -> None:
        self.devices: list[NvmlDevice] = []
        self.simulated = False
        self.driver: Driver | None = None
        self.unsettled = False
        """The driver ended the session, or a device woke that nothing was known of: :meth:`refresh` is due."""
        self._open = False
        self._sleep = Sleep()
        self._topology: tuple[list[Member], Topology] | None = None
        self._activity = Activity(pynvml, _ACTIVITY)
        self._plans: dict[Lane, tuple[Plan, ...]] = {
            lane: tuple(plans(pynvml, lane)) for lane in Lane if lane is not Lane.GPM
        }
        self._fields = {lane: plan for lane in Lane if (plan := field_plan(pynvml, lane)) is not None}
        self._tenants = Tenants(pynvml)
        self._xids = Xids(pynvml)

    def open(self) -> None:
        """Initialises NVML and lists the devices; :class:`NvmlUnavailable` when that fails."""
        if self._open:
            return
        if not hasattr(pynvml, "nvmlDeviceGetComputeRunningProcesses_v3"):
            raise NvmlUnavailable(
                Problem(
                    source="nvml",
                    reason="driver.bad-state",
                    detail="the module pynvml comes from another package than nvidia-ml-py, or from an old one",
                    hint="pip uninstall pynvml nvidia-ml-py3, then pip install --force-reinstall nvidia-ml-py",
                )
            )
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise NvmlUnavailable(reasons.problem(pynvml, error.value, simulated=self._looked())) from error
        self._open = True
        self._looked()
        self._sleep = Sleep()
        self.driver = self._read_driver()
        self._list_devices()

    def close(self) -> None:
        """Ends the session; a session that will not end is left to the process's exit."""
        if self._open:
            self._open = False
            self.devices = []
            self._activity.forget()
            self._xids.forget()
            try:
                pynvml.nvmlShutdown()
            except pynvml.NVMLError:
                return

    def ask_again(self) -> None:
        """What a device said that it does not support is asked once more: a driver or a reset may have brought it.

        Not GPM, which costs a profiler its counters.
        """
        for device in self.devices:
            self._ask_all(device)

    @staticmethod
    def _ask_all(device: NvmlDevice) -> None:
        for name in [name for name in device.permanent if name != "gpm"]:
            del device.permanent[name]

    def refresh(self) -> bool:
        """Looks whether the list of devices changed, and renews it; True when it did.

        A session that the driver ended is begun again; :class:`NvmlUnavailable` when that fails.
        """
        try:
            count = pynvml.nvmlDeviceGetCount()
            woken = any(device.handle is None and self._awake(device) for device in self.devices)
            same = (
                not woken
                and count == len(self.devices)
                and all(
                    device.state == ASLEEP or self._uuid_at(device.index) in (device.uuid, None)
                    for device in self.devices
                )
            )
        except pynvml.NVMLError as error:
            if error.value not in reasons.ENDED:
                return False
            self._begin_again()
            return True
        self.unsettled = False
        if not same:
            self._list_devices()
        return not same

    def sample(self, device: NvmlDevice, lanes: Iterable[Lane]) -> tuple[dict[str, Value], dict[str, Missing]]:
        """Reads the metrics of ``lanes``; lanes not asked for answer from what was read before.

        Where nothing has changed since the call before, it gives the very same objects: they are not to be changed.
        """
        readings: dict[str, Value] = {}
        missing: dict[str, Missing] = {}
        asked = set(lanes)
        told = METRICS if Lane.GPM in asked else _ALWAYS
        before, device.told = device.told, None
        if Lane.SLOW in asked:
            device.may_sleep = self._sleep.managed(device.pci_bus_id)
        if (device.may_sleep or device.state == ASLEEP) and self._sleeps(device):
            return self._asleep(device, told)
        if device.handle is None:
            # It did not answer when it was listed: nothing can be asked, and the next look lists it again.
            return {}, self._all_lost(device, told)
        if device.state in ("lost", "reset-required") and not self._answers(device):
            return {}, self._all_lost(device, told)
        if Lane.SLOW in asked:
            self._look_at_mig(device)
        for plan in self._plans[Lane.FAST]:
            self._ask(device, plan, readings, missing)
            if device.state in ("lost", "reset-required"):
                return {}, self._all_lost(device, told)
        if before is not None and asked == _FAST_ALONE and (readings, missing) == before[:2]:
            device.told = before
            return before[2], before[3]
        fast = (readings, missing)
        readings, missing = dict(readings), dict(missing)
        for lane in (Lane.SLOW, Lane.ONCE, Lane.ON_DEMAND):
            if lane in asked:
                device.kept[lane] = self._lane(device, lane)
                if lane is Lane.SLOW:
                    device.slow_at = time.monotonic()
            if lane in device.kept:
                answered, failed = device.kept[lane]
                readings.update(answered)
                missing.update(failed)
        if Lane.GPM in asked:
            self._ask_activity(device, readings, missing)
        else:
            device.told = (*fast, readings, missing)
        return readings, missing

    def hear_xids(self, *, listen: bool) -> None:
        """Takes the Xids that have come into the devices; ``listen``: devices that are new are registered first."""
        if listen:
            self._xids.listen(self.devices, _missing)
        self._xids.hear(self.devices, _missing)

    def forget_activity(self) -> None:
        """Gives back what GPM needs, when nobody wants it any more."""
        self._activity.forget()

    def processes(self, device: NvmlDevice) -> tuple[list[GpuProcess], list[Missing]]:
        """Compute, graphics and MPS processes, a pid once; what could not be listed beside it."""
        return self._tenants.processes(device)

    def process_utilization(self, device: NvmlDevice) -> tuple[dict[int, Utilization], Missing | None]:
        """Newest utilization by pid since the last call; None beside it when the call works."""
        return self._tenants.utilization(device)

    def mig_instances(self, device: NvmlDevice, *, gpm: bool = False) -> tuple[MigInstance, ...]:
        """The MIG instances with their memory now, and with their activity where somebody opted in.

        A layout that changed is found again.
        """
        if not device.instances or device.state != "ok":
            return ()
        found = self._instances(device)
        return tuple(self._with_activity(device, instance) for instance in found) if gpm else found

    def _instances(self, device: NvmlDevice) -> tuple[MigInstance, ...]:
        try:
            return tuple(mig.reading(pynvml, instance, _missing) for instance in device.instances)
        except pynvml.NVMLError:
            self._list_instances(device)
        try:
            return tuple(mig.reading(pynvml, instance, _missing) for instance in device.instances)
        except pynvml.NVMLError:
            return ()  # it changes right now: the next look finds it

    def _with_activity(self, device: NvmlDevice, instance: MigInstance) -> MigInstance:
        if device.permanent.get("gpm") is TOO_OLD:
            missing = instance.missing | {spec.id: TOO_OLD for spec in _ACTIVITY}
            return msgspec.structs.replace(instance, missing=missing)
        if instance.uuid is None or instance.gpu_instance is None:
            return instance
        answered, failed, _ = self._activity.read(
            instance.uuid, device.handle, True, _missing, gpu_instance=instance.gpu_instance
        )
        readings, missing = instance.readings | answered, instance.missing | failed
        return msgspec.structs.replace(instance, readings=readings, missing=missing)

    def topology(self) -> Topology:
        """How the devices hang together; the same object until their list, or who of them answers, changes."""
        members = [
            Member(device.uuid, device.pci_bus_id, device.handle if device.state == "ok" else None)
            for device in self.devices
        ]
        if self._topology is not None and self._topology[0] == members and not self._topology[1].incomplete:
            return self._topology[1]
        found = topology(pynvml, members, _missing)
        if self._topology is None or self._topology[1] != found:
            self._topology = (members, found)
        return self._topology[1]

    # -- inside ---------------------------------------------------------------------------------

    def _looked(self) -> bool:
        """Whether the library is a simulated one, which it is also when it does not start."""
        self.simulated = hasattr(pynvml.nvmlLib, "gpuwatch_sim_version")
        return self.simulated

    def _sleeps(self, device: NvmlDevice) -> bool:
        """Whether the kernel has suspended it. One that was asleep when it was listed is described when it wakes."""
        if self._sleep.asleep(device.pci_bus_id):
            device.state, device.state_detail = ASLEEP, "the kernel has suspended it; asking would wake it"
            return True
        if device.state == ASLEEP:
            if device.handle is None:
                self.unsettled = True
                return True
            device.state, device.state_detail = "ok", ""
        return False

    def _awake(self, device: NvmlDevice) -> bool:
        return device.state == ASLEEP and not self._sleep.asleep(device.pci_bus_id)

    def _asleep(self, device: NvmlDevice, told: tuple[MetricSpec, ...]) -> tuple[dict[str, Value], dict[str, Missing]]:
        """What does not change is still known of it."""
        known = dict(device.kept[Lane.ONCE][0]) if Lane.ONCE in device.kept else {}
        sleeps = Missing("no_sample", detail="the GPU sleeps, and asking would wake it")
        return known, {spec.id: sleeps for spec in told if spec.id not in known}

    def _begin_again(self) -> None:
        """Ends what is left of the session and begins another; what is known of the devices stays."""
        known, self.unsettled = self.devices, False
        self.close()
        self.devices = known
        self.open()

    def _look_at_mig(self, device: NvmlDevice) -> None:
        """Whether MIG is on, and the instances. What it withholds is asked anew when it is switched."""
        kept = device.permanent.get("mig")
        if kept is not None:
            return
        try:
            on = bool(pynvml.nvmlDeviceGetMigMode(device.handle)[0])
        except pynvml.NVMLError as error:
            if error.value in reasons.PERMANENT:
                device.permanent["mig"] = _missing(error.value, "nvmlDeviceGetMigMode")
            return
        if on != device.mig_on:
            if device.mig_on is not None:
                device.permanent.clear()
            device.mig_on = on
        if on or device.instances:
            self._list_instances(device)

    def _list_instances(self, device: NvmlDevice) -> None:
        before = {instance.facts.uuid for instance in device.instances if instance.facts.uuid is not None}
        self._renew_instances(device)
        gone = before - {instance.facts.uuid for instance in device.instances}
        if gone:
            self._activity.forget(gone)

    def _renew_instances(self, device: NvmlDevice) -> None:
        try:
            device.instances = mig.instances(pynvml, device.handle, _missing)
        except pynvml.NVMLError:
            device.instances = []  # the metric mig.instances has the reason

    def _lane(self, device: NvmlDevice, lane: Lane) -> tuple[dict[str, Value], dict[str, Missing]]:
        """Asks every call of a lane; of what is read once, those that have not answered yet."""
        fresh: dict[str, Value] = {}
        failed: dict[str, Missing] = {}
        if lane is Lane.ONCE and lane in device.kept:
            fresh.update(device.kept[lane][0])
        if lane is Lane.SLOW and _ECC in device.permanent and _maybe(pynvml.nvmlDeviceGetEccMode, device.handle):
            self._ask_all(device)  # it has come to support ECC, and with it perhaps more
        for plan in self._plans[lane]:
            if not all(spec.id in fresh for spec in plan.specs):
                self._ask(device, plan, fresh, failed)
        if lane in self._fields:
            self._ask_fields(device, self._fields[lane], fresh, failed)
        return fresh, failed

    def _ask(self, device: NvmlDevice, plan: Plan, readings: dict[str, Value], missing: dict[str, Missing]) -> None:
        permanent = device.permanent.get(plan.name)
        if permanent is not None:
            for spec in plan.specs:
                missing[spec.id] = permanent
            return
        try:
            answer = plan.call(device.handle)
        except pynvml.NVMLError as error:
            code = error.value
            lack = reasons.missing(pynvml, code, plan.specs[0].call, mig_on=bool(device.mig_on))
            if code in reasons.PERMANENT:
                device.permanent[plan.name] = lack
            elif code in reasons.LOST:
                device.state = reasons.LOST[code]
                device.state_detail = lack.detail
            elif code in reasons.ENDED:
                self.unsettled = True
            for spec in plan.specs:
                missing[spec.id] = lack
            return
        if type(answer) is int:
            kept = device.answers.get(plan.name)
            if kept is None or kept[0] != answer:
                kept = device.answers[plan.name] = (answer, tuple([(one.id, pick(one, answer)) for one in plan.specs]))
            found = kept[1]
        else:
            found = tuple([(one.id, pick(one, answer)) for one in plan.specs])
        for name, value in found:
            if isinstance(value, Missing):
                missing[name] = value
            else:
                readings[name] = value

    def _ask_activity(self, device: NvmlDevice, readings: dict[str, Value], missing: dict[str, Missing]) -> None:
        kept = device.permanent.get("gpm")
        if kept is not None:
            missing.update((spec.id, kept) for spec in _ACTIVITY)
            return
        answered, failed, never = self._activity.read(device.uuid, device.handle, bool(device.mig_on), _missing)
        if never is not None:
            device.permanent["gpm"] = never
        readings.update(answered)
        missing.update(failed)

    def _ask_fields(
        self, device: NvmlDevice, plan: FieldPlan, readings: dict[str, Value], missing: dict[str, Missing]
    ) -> None:
        wanted = []
        for spec, field in zip(plan.specs, plan.fields, strict=True):
            if spec.id in readings:
                continue  # of the lane that is read once
            permanent = device.permanent.get(spec.id)
            if permanent is None:
                wanted.append((spec, field))
            else:
                missing[spec.id] = permanent
        if not wanted:
            return
        try:
            values = pynvml.nvmlDeviceGetFieldValues(device.handle, [field for _, field in wanted])
        except pynvml.NVMLError as error:
            lack = _missing(error.value, FIELDS)
            if error.value in reasons.LOST:
                device.state, device.state_detail = reasons.LOST[error.value], lack.detail
            for spec, _ in wanted:
                missing[spec.id] = lack
                if error.value in reasons.PERMANENT:
                    device.permanent[spec.id] = lack
            return
        for (spec, _), value in zip(wanted, values, strict=True):
            found = field_value(spec, value)
            if not isinstance(found, Missing):
                readings[spec.id] = found
                continue
            if found.code is not None:
                found = reasons.field_missing(pynvml, found.code, FIELDS, str(spec.args[0]))
                if found.reason == "not_supported":
                    device.permanent[spec.id] = found
                elif found.code in reasons.LOST:
                    device.state, device.state_detail = reasons.LOST[found.code], found.detail
            missing[spec.id] = found

    def _answers(self, device: NvmlDevice) -> bool:
        """Whether a device that was lost is back."""
        try:
            pynvml.nvmlDeviceGetUtilizationRates(device.handle)
        except pynvml.NVMLError as error:
            if error.value in reasons.LOST:
                return False
            if error.value not in reasons.PERMANENT:
                device.state_detail = f"nvmlDeviceGetUtilizationRates: {reasons.text(pynvml, error.value)}"
                return False
        device.state, device.state_detail = "ok", ""
        return True

    def _all_lost(self, device: NvmlDevice, told: tuple[MetricSpec, ...]) -> dict[str, Missing]:
        lost = Missing("failed" if device.state == "failed" else "device_lost", detail=device.state_detail)
        return {spec.id: lost for spec in told}

    def _read_driver(self) -> Driver:
        version = _maybe(pynvml.nvmlSystemGetDriverVersion)
        cuda = _maybe(pynvml.nvmlSystemGetCudaDriverVersion_v2)
        nvml = _maybe(pynvml.nvmlSystemGetNVMLVersion)
        return Driver(
            version=None if version is None else decode(version),
            cuda_version=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
            nvml_version=None if nvml is None else decode(nvml),
        )

    def _uuid_at(self, index: int) -> str | None:
        """UUID of the device at ``index`` now; None when it does not answer (a lost device)."""
        try:
            return decode(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index)))
        except pynvml.NVMLError:
            return None

    def _list_devices(self) -> None:
        known = {device.uuid: device for device in self.devices}
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise NvmlUnavailable(reasons.problem(pynvml, error.value, simulated=self.simulated)) from error
        there = self._sleep.gpus()
        asleep = {
            index: pci
            for index, pci in enumerate(there)
            if len(there) == count and self._sleep.managed(pci) and self._sleep.asleep(pci)
        }
        self.devices = [
            self._undisturbed(index, asleep[index]) if index in asleep else self._describe(index, known)
            for index in range(count)
        ]

    def _undisturbed(self, index: int, pci_bus_id: str) -> NvmlDevice:
        """A device that sleeps: what was known of it, or its place alone."""
        for device in self.devices:
            if device.pci_bus_id == pci_bus_id and device.handle is not None:
                device.index, device.state = index, ASLEEP
                return device
        detail = "the kernel has suspended it; asking would wake it"
        return NvmlDevice(index, None, f"asleep-{pci_bus_id}", "sleeping GPU", pci_bus_id, None, ASLEEP, detail)

    def _describe(self, index: int, known: dict[str, NvmlDevice]) -> NvmlDevice:
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = decode(pynvml.nvmlDeviceGetUUID(handle))
        except pynvml.NVMLError as error:
            # A lost device has no handle; its row stays, under what was known of this slot.
            before = next((device for device in known.values() if device.index == index), None)
            state = reasons.LOST.get(error.value, "failed")
            detail = f"nvmlDeviceGetHandleByIndex: {reasons.text(pynvml, error.value)}"
            if before is not None:
                before.state, before.state_detail = state, detail
                return before
            return NvmlDevice(index, None, f"unknown-{index}", "unknown GPU", "", None, state, detail)
        if uuid in known:
            device = known[uuid]
            device.index, device.handle = index, handle
            device.permanent.clear()
            device.mig_on, device.instances = None, []
            device.kept.pop(Lane.ONCE, None)
            device.told = None
            device.state, device.state_detail = "ok", ""
            return device
        name = _maybe(pynvml.nvmlDeviceGetName, handle)
        pci = _maybe(pynvml.nvmlDeviceGetPciInfo, handle)
        capability = _maybe(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
        return NvmlDevice(
            index,
            handle,
            uuid,
            "unknown GPU" if name is None else decode(name),
            "" if pci is None else bus_id(decode(pci.busId)),
            None if capability is None else f"{capability[0]}.{capability[1]}",
        )


def _maybe(call: Callable[..., Any], *args: Any) -> Any:
    """The answer, or None when NVML refuses: for identity facts, which have no reason of their own."""
    try:
        return call(*args)
    except pynvml.NVMLError:
        return None
