"""Lines of the kernel about the ConnectX-7, in the form of public reports."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.fabric import adapter


@pytest.mark.parametrize(
    ("line", "faults"),
    [
        (
            "mlx5_core 0000:01:00.0: mlx5_pcie_event:322:(pid 611): PCIe slot power capability was not advertised.",
            ["power"],
        ),
        (
            "mlx5_core 0000:01:00.1: mlx5_pcie_event:326:(pid 611): Detected insufficient power on the PCIe slot (27W).",
            [],
        ),
        ("pcieport 0000:00:00.0: AER: Uncorrectable (Fatal) error message received from 0000:00:00.0", ["failed"]),
        (
            "mlx5_core 0000:01:00.1: mlx5_pci_slot_reset Device state = 1 health sensors: 1 pci_status: 0. Enter",
            ["failed"],
        ),
        ("pcieport 0000:00:00.0: AER: Corrected error message received from 0000:01:00.0", []),
        ("", []),
    ],
)
def test_faults(line: str, faults: list[str]) -> None:
    assert adapter.faults(f"first\n{line}\nlast") == faults
