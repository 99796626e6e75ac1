"""Energy and mean power of each GPU since watching began: from its energy counter, else from power samples."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Device, Snapshot
from gpuwatch.machine.history.gone_gpus import forget_gone
from gpuwatch.machine.history.sample_gaps import MAX_UNOBSERVED_SECONDS


def has_no_counter(device: Device) -> bool:
    """Whether a device will never have an energy counter; False if it was only not read now."""
    value = device.get("energy_joules")
    return isinstance(value, Missing) and value.permanent


@dataclass(frozen=True, slots=True)
class Energy:
    """The energy that one or more devices used."""

    joules: float
    seconds: float
    """The time over which it was measured."""
    estimated: bool
    """Whether it was integrated from power samples."""
    devices: int = 1
    unknown_devices: int = 0
    """Devices of which nothing is known, and which ``joules`` leaves out."""
    mean_watts: float = 0.0
    """Mean power in watts; for several devices, the sum of their means."""


@dataclass(slots=True)
class _DeviceEnergy:
    """The energy of one device: by its counter where it has one, and by its power samples."""

    counter: float | None = None
    counter_at: float | None = None
    """When the counter was last seen to change; None before: the first value may have been read seconds earlier."""
    counted_joules: float = 0.0
    counted_seconds: float = 0.0
    has_counter: bool = False
    watts: float | None = None
    watts_at: float = 0.0
    sampled_joules: float = 0.0
    sampled_seconds: float = 0.0

    def observe(self, device: Device, at: float) -> None:
        value = device.get("energy_joules")
        if isinstance(value, (int, float)):
            self._count(float(value), at)
        elif not has_no_counter(device):
            self.has_counter = True  # wait for it, rather than estimate
        self._sample(device.number("power.draw_watts"), at)

    def _count(self, value: float, at: float) -> None:
        self.has_counter = True
        if self.counter is not None and value == self.counter:
            return  # read every few seconds only
        if self.counter_at is not None and self.counter is not None and value > self.counter:
            self.counted_joules += value - self.counter
            self.counted_seconds += at - self.counter_at
        self.counter_at = at if self.counter is not None else None
        self.counter = value  # a lower one was reset with the driver

    def _sample(self, watts: float | None, at: float) -> None:
        if watts is not None and self.watts is not None and 0 < at - self.watts_at <= MAX_UNOBSERVED_SECONDS:
            self.sampled_joules += (watts + self.watts) / 2 * (at - self.watts_at)
            self.sampled_seconds += at - self.watts_at
        self.watts, self.watts_at = watts, at

    @property
    def energy(self) -> Energy | None:
        """None until two readings exist whose times are known."""
        counted = self.has_counter
        joules = self.counted_joules if counted else self.sampled_joules
        seconds = self.counted_seconds if counted else self.sampled_seconds
        return Energy(joules, seconds, not counted, mean_watts=joules / seconds) if seconds > 0 else None


class EnergyMeter:
    """Takes snapshots in order of time."""

    def __init__(self) -> None:
        self._devices: dict[str, _DeviceEnergy] = {}

    def observe(self, snapshot: Snapshot) -> None:
        """Adds what was used since the previous snapshot."""
        at = snapshot.taken_at.timestamp()
        for device in snapshot.devices:
            self._devices.setdefault(device.uuid, _DeviceEnergy()).observe(device, at)
        forget_gone({device.uuid for device in snapshot.devices}, self._devices)

    def of(self, uuid: str) -> Energy | None:
        counted = self._devices.get(uuid)
        return counted.energy if counted is not None else None

    def machine(self) -> Energy | None:
        """What all devices have used together; None if nothing is known of any."""
        found = [energy for device in self._devices.values() if (energy := device.energy) is not None]
        if not found:
            return None
        return Energy(
            sum(energy.joules for energy in found),
            max(energy.seconds for energy in found),
            any(energy.estimated for energy in found),
            len(found),
            len(self._devices) - len(found),
            sum(energy.mean_watts for energy in found),
        )
