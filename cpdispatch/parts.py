"""Kernels as parts of the kernels that call them.

numba optimises each function with all that it calls, and makes machine code of the result, though
only what Python calls is ever run: a kernel at the bottom of ten others goes through LLVM eleven
times. A part is the code of a kernel for its callers alone: it has no machine code, and it is
optimised in each kernel that Python calls. That halves the time that compiling takes.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from llvmlite.binding import parse_bitcode  # type: ignore[import-untyped]
from numba.core.caching import CompileResultCacheImpl
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.typed_passes import IRLegalization


class QuickFlags(Flags):
    """Options of a compilation whose values are listed quickly.

    numba lists them, property by property, whenever it looks up a function for the types of a call:
    in a tenth of the time that compiling took.
    """

    __slots__ = ()

    def values(self) -> dict[str, Any]:
        """All values by their names, those that are not set included."""
        return _DEFAULTS | self._values


_DEFAULTS = {name: option.default for name, option in Flags.options.items()}


class Part(JITCodeLibrary):
    """The code of a kernel and of all that it calls, as it is linked to the code of its callers."""

    @property
    def codegen(self) -> Any:
        """The code generator, but that no machine code is there to be given an environment."""
        return SimpleNamespace(set_env=lambda name, environment: None)

    def finalize(self) -> None:
        """Link what the kernel calls; leave the rest to the kernels that call it."""
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._final_module.verify()
        self._finalized = True

    def serialize_using_object_code(self) -> tuple[str, str, bytes]:
        """What is kept of it: its bitcode, since there is no machine code."""
        return self.name, "part", self._get_module_for_linking().as_bitcode()


def give_environments(compiled: Any) -> None:
    """Let compiled code with its parts find the Python objects that these use, as `print` does."""
    for environment in compiled._find_referenced_environments():
        compiled.codegen.set_env(environment.env_name, environment)


class KeptPart(CompileResultCacheImpl):
    """How a part is read again."""

    def rebuild(self, target_context: Any, payload: tuple[Any, ...]) -> Any:
        """A compiled kernel of what was kept of it."""

        def read(kept: tuple[str, str, bytes]) -> Part:
            part = Part(target_context.codegen(), kept[0])
            part._shared_module = parse_bitcode(kept[2])
            part._finalized = True
            return part

        reader = SimpleNamespace(
            codegen=lambda: SimpleNamespace(unserialize_library=read),
            get_executable=target_context.get_executable,
            typing_context=target_context.typing_context,
        )
        return super().rebuild(reader, payload)._replace(target_context=target_context)


@register_pass(mutates_CFG=False, analysis_only=True)
class _AsPart(LoweringPass):
    """Have the code go to a part."""

    _name = "as_part"

    def __init__(self) -> None:
        LoweringPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        state.library = Part(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return False


class PartCompiler(CompilerBase):
    """Compiles a kernel as a part."""

    def define_pipelines(self) -> list[Any]:
        """The passes that numba compiles any function with, and the one that makes a part of it."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_AsPart, IRLegalization)
        passes.finalize()
        return [passes]
