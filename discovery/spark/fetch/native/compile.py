"""The loops of `kernel` to one object file, by numba. Imported only where no kept code was found."""

from typing import Any

import llvmlite.binding as llvm
import numba

from discovery.spark.fetch.native import kernel
from discovery.spark.fetch.native.code import NAMES, host

_SIGNATURE = "int64(int64, int64, int64, int64)"


def compiled() -> bytes:
    """Return an object file with the functions `kafka_discovery_<name>`.

    Runs: worker, once per machine; some seconds.
    """
    whole: Any = llvm.parse_assembly("")
    for name in NAMES:
        function = numba.cfunc(_SIGNATURE, error_model="numpy")(getattr(kernel, name))
        module = llvm.parse_assembly(function.inspect_llvm())
        module.get_function(function.native_name).name = f"kafka_discovery_{name}"
        whole.link_in(module)
    triple, processor, features = host()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=processor, features=features, opt=3, reloc="pic", codemodel="small", jit=True
    )
    return bytes(machine.emit_object(whole))
