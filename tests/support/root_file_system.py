"""A root file system for container images of the tests."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from live_cluster import Cluster


def debian(cluster: Cluster, folder: Path, name: str, packages: Sequence[str] = ()) -> Path:
    """Return a tar file in a folder with a Debian that has Python, a shell and these packages. It is created once and
    kept with the lab's other downloads."""
    suite, components = cluster.variable("lab_suite", "bookworm"), cluster.variable("lab_components", ["main"])
    included = f"--include={','.join(['base-files', 'coreutils', 'dash', 'python3', *packages])}"
    options = ["--variant=extract", f"--components={','.join(components)}", included, suite]
    digest = hashlib.sha256("\n".join(options).encode()).hexdigest()[:12]
    kept = Path(cluster.variable("lab_cache_dir", Path.home() / ".cache/gb10-lab")) / f"{name}-{suite}-{digest}.tar"
    if not kept.exists():
        part = folder / "part.tar"
        subprocess.run(["mmdebstrap", "--quiet", *options, str(part)], check=True)
        shutil.move(part, kept)
    return Path(shutil.copy(kept, folder / "image.tar"))
