"""Builds the engine into a wheel, which is then for one platform; SEQ2SEE_SYSTEM chooses another, such as linux-aarch64."""

import importlib.util
import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLATFORMS = {
    "linux-x86_64": "manylinux_2_17_x86_64.manylinux2014_x86_64",
    "linux-aarch64": "manylinux_2_17_aarch64.manylinux2014_aarch64",
    "darwin-x86_64": "macosx_11_0_x86_64",
    "darwin-aarch64": "macosx_11_0_arm64",
    "win32-x86_64": "win_amd64",
}


class EngineHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        spec = importlib.util.spec_from_file_location("build_engine", Path(self.root, "src/seq2see/engine/build.py"))
        assert spec is not None and spec.loader is not None
        build_engine = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(build_engine)
        system = os.environ.get("SEQ2SEE_SYSTEM", "") or build_engine.this_system()
        try:
            library: Path = build_engine.build(system)
        except build_engine.BuildError as error:
            self.app.display_warning(f"a wheel without the engine, so decoding runs on torch: {error}")
            return
        if version == "standard":
            build_data["force_include"][str(library)] = f"seq2see/engine/lib/{library.name}"
            if system in PLATFORMS:
                build_data["tag"] = f"py3-none-{PLATFORMS[system]}"
