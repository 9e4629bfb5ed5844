"""Puts the command into the wheel, if the environment has KEYLANE_BINARY.

`KEYLANE_BINARY=target/release/keylane python -m build --wheel` makes a wheel for this platform.
`pip install` of it installs the command `keylane` and the client. `KEYLANE_PLATFORM` names another
platform, for a binary that was built for one, such as `macosx_11_0_arm64`. `KEYLANE_LICENCES` names
a folder with the licences of the libraries in the binary. Without KEYLANE_BINARY the wheel is for
every platform, and has the client alone.
"""

import os
import stat
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags


class CommandHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        named = os.environ.get("KEYLANE_BINARY")
        if not named or self.target_name != "wheel" or version == "editable":
            return
        binary = Path(named).resolve()
        if not binary.is_file() or not binary.stat().st_mode & stat.S_IXUSR:
            raise FileNotFoundError(
                f"KEYLANE_BINARY is {named}, which is no executable file; give the path of the"
                " command, such as target/release/keylane"
            )
        platform = os.environ.get("KEYLANE_PLATFORM") or next(iter(platform_tags()))
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        build_data["shared_scripts"] = {str(binary): f"keylane{binary.suffix}"}
        licences = os.environ.get("KEYLANE_LICENCES")
        if licences:
            build_data["shared_data"] = {str(Path(licences).resolve()): "share/doc/keylane"}
