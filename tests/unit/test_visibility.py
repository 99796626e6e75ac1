from __future__ import annotations

import msgspec

from gpuwatch.core.model.snapshot import Device
from gpuwatch.core.model.visible_devices import visible_devices
from tests.every import every


def machine(*names: str) -> list[Device]:
    return [
        Device(index=i, uuid=f"GPU-{i}{i}{i}{i}-aaaa", name=name, pci_bus_id=f"0000:0{i}:00.0", readings={}, missing={})
        for i, name in enumerate(names)
    ]


ALIKE = machine("A", "A", "A")


@every(
    [
        (None, [0, 1, 2], None, False),
        ("1,0", [1, 0], None, False),
        (" 2 , 0 ", [2, 0], None, False),
        ("", [], None, True),
        ("-1", [], None, True),
        ("NoDevFiles", [], None, True),
        ("none", [], None, True),
        ("-1,0", [], "-1", True),
        ("0,-1,1", [0], "-1", False),
        ("0,7,1", [0], "7", False),
        ("GPU-2222", [2], None, False),
        ("GPU-2222,0", [2], "0", False),
        ("0,GPU-2222", [0], "GPU-2222", False),
        ("gpu-2222", [2], None, False),
        ("1 2", [1], None, False),
        ("1-2", [1], None, False),
        ("GPU-", [], "GPU-", False),  # not unique
        ("0,0", [], "0", False),
        ("zero", [], "zero", False),
    ]
)
def test_list_is_read_as_cuda_reads_it(
    value: str | None, indices: list[int], invalid: str | None, hidden: bool
) -> None:
    seen = visible_devices(value, None, ALIKE)
    assert [entry.index for entry in seen.map] == indices
    assert [entry.ordinal for entry in seen.map] == list(range(len(indices)))
    assert (seen.invalid, seen.hidden) == (invalid, hidden)


def test_mixed_cards_in_the_default_order_are_not_guessed() -> None:
    mixed = machine("A", "B")
    assert visible_devices("0", None, mixed).map == ()
    assert visible_devices("0", None, mixed).why_unsure
    assert visible_devices(None, None, mixed).why_unsure
    assert [entry.index for entry in visible_devices("1", "PCI_BUS_ID", mixed).map] == [1]
    assert [entry.index for entry in visible_devices("GPU-1111", None, mixed).map] == [1]


def test_a_mig_instance_is_no_invalid_entry_where_mig_is_on() -> None:
    """Nor is it a whole GPU: which device the process sees is not known then."""
    parted = [msgspec.structs.replace(device, readings={"mig.mode": "enabled"}) for device in ALIKE]
    seen = visible_devices("MIG-aaaa", None, parted)
    assert (seen.map, seen.invalid, seen.hidden) == ((), None, False)
    assert "MIG" in seen.why_unsure
    assert visible_devices("MIG-aaaa", None, ALIKE).invalid == "MIG-aaaa"
