"""Build the optional native kernels; everything else about the package is in pyproject.toml.

The kernels are plain C++ called through ctypes, so the build needs a compiler and setuptools, no torch and no Python
headers, and one wheel serves every Python and every torch of a platform. Each instruction set is a file with flags of
its own, chosen between at run time: the result runs on any machine of the architecture. Where the build fails the
package installs all the same, with the reason in `_native_build.txt` for `filtercov.nn.native_status` to repeat.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

CSRC = Path("src/filtercov/csrc")
COMMON_FLAGS = ["-std=c++17", "-O3", "-g0", "-ffp-contract=fast", "-fno-math-errno", "-fvisibility=hidden"]
ISA_FLAGS = {
    "isa_avx2": ["-mavx2", "-mfma"],
    "isa_avx512": ["-mavx512f", "-mavx512vl", "-mavx512bw", "-mavx512dq", "-mfma"],
}


class BuildNative(build_ext):
    """Compile csrc into one shared library, or write down why that failed."""

    def run(self) -> None:
        """Build; an editable or in-place build leaves its record in the source tree as well."""
        in_source = bool(self.inplace or getattr(self, "editable_mode", False))
        self.record_folders = [CSRC.parent] if in_source else []
        super().run()

    def get_ext_filename(self, ext_name: str) -> str:
        """Name the library by the platform alone: no Python loads it as a module."""
        return str(Path(*ext_name.split("."))) + (".dll" if str(self.plat_name).startswith("win") else ".so")

    def build_extension(self, ext: Extension) -> None:
        """Try with OpenMP, then without it, then give up without failing the installation."""
        reason = None
        for openmp in (["-fopenmp"], []):
            try:
                self._compile_and_link(ext, openmp)
            except Exception as error:  # any failure of any toolchain: the package must still install
                reason = reason or f"{type(error).__name__}: {error}"
            else:
                reason = None
                break
        self._record(Path(self.get_ext_fullpath(ext.name)).parent, reason)

    def copy_extensions_to_source(self) -> None:
        """Copy what was built, if it was."""
        if all((Path(self.build_lib) / self.get_ext_filename(ext.name)).exists() for ext in self.extensions):
            super().copy_extensions_to_source()

    def _compile_and_link(self, ext: Extension, openmp: list[str]) -> None:
        # What is built for, not what builds: the two differ under a cross-compiler.
        for_x86_64 = self.plat_name.lower().endswith(("x86_64", "amd64"))

        def compile_one(source: str) -> list[str]:
            isa_flags = ISA_FLAGS.get(Path(source).stem, []) if for_x86_64 else []
            flags = [*COMMON_FLAGS, *openmp, *isa_flags]
            return self.compiler.compile(
                [source], output_dir=self.build_temp, extra_postargs=flags, depends=ext.depends
            )

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = [built for source in pool.map(compile_one, ext.sources) for built in source]
        self.compiler.link_shared_object(
            objects,
            self.get_ext_fullpath(ext.name),
            extra_postargs=openmp,
            build_temp=self.build_temp,
            target_lang="c++",
        )

    def _record(self, built_to: Path, reason: str | None) -> None:
        for folder in [built_to, *self.record_folders]:
            folder.mkdir(parents=True, exist_ok=True)
            record = folder / "_native_build.txt"
            record.unlink(missing_ok=True)
            if reason is not None:
                record.write_text(" ".join(reason.split()) + "\n", encoding="utf-8")
        if reason is not None:
            self.warn(f"filtercov: native kernels not built ({reason})")


class Wheel(bdist_wheel):
    """Tag a wheel by what it holds: kernels of a platform, or Python alone."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags for Python, its binary interface and the platform."""
        build = self.get_finalized_command("build_ext")
        built = all(Path(build.get_ext_fullpath(ext.name)).exists() for ext in self.distribution.ext_modules)
        return "py3", "none", super().get_tag()[2] if built else "any"


setup(
    ext_modules=[
        Extension(
            "filtercov._native",
            sources=sorted(str(path) for path in CSRC.glob("*.cpp")),
            depends=sorted(str(path) for suffix in ("h", "inl") for path in CSRC.glob(f"*.{suffix}")),
            language="c++",
        )
    ],
    cmdclass={"build_ext": BuildNative, "bdist_wheel": Wheel},
)
