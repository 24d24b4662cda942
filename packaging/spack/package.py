# SPDX-License-Identifier: Apache-2.0
# How Spack 1.0 and later build gradmeter, from a checkout or an unpacked tarball. Never built yet: see packaging/README.md.
from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Gradmeter(CMakePackage, CudaPackage):
    """Measures how training efficiency depends on mini-batch, ranks, gradient exchange and interconnect."""

    license("Apache-2.0")

    version("main")
    version("0.2.0")

    variant("mpi", default=True, description="Ranks are processes; without it they are threads of one")
    variant("onednn", default=True, description="Kernels by oneDNN; without it products are a slow reference's")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("boost@1.74: +program_options")
    depends_on("highway")
    depends_on("hwloc")
    depends_on("fmt@9:")
    depends_on("nlohmann-json")
    depends_on("zlib-api")
    depends_on("mpi@3.1:", when="+mpi")
    depends_on("onednn@2.5:2", when="+onednn")  # 3 has another interface
    depends_on("nccl@2.18:", when="+cuda")

    generator("ninja")

    def cmake_args(self):
        arguments = [
            self.define_from_variant("GRADMETER_MPI", "mpi"),
            self.define_from_variant("GRADMETER_ONEDNN", "onednn"),
            self.define_from_variant("GRADMETER_CUDA", "cuda"),
            self.define_from_variant("GRADMETER_NCCL", "cuda"),
            self.define("GRADMETER_GLOO", False),  # one of the system would be found otherwise
            self.define("GRADMETER_TESTS", False),
            self.define("GRADMETER_BENCHMARKS", False),
        ]
        if self.spec.satisfies("+cuda"):
            arguments.append(self.define("GRADMETER_CUDA_ARCHITECTURES", self.spec.variants["cuda_arch"].value))
        return arguments
