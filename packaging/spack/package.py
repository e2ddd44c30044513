# Copyright Spack Project Developers. See COPYRIGHT file for details.
#
# SPDX-License-Identifier: (Apache-2.0 OR MIT)
#
# To be put into a repository of recipes as packages/libibverbs-exp/package.py.

from spack.package import *


class LibibverbsExp(MesonPackage):
    """Experimental verbs (ibv_exp_*) of MLNX_OFED on today's rdma-core, with a
    software HCA and tools to run and examine programs of that time."""

    homepage = "https://libibverbs-exp.invalid/"
    git = "https://libibverbs-exp.invalid/libibverbs_exp.git"

    license("GPL-2.0-only OR BSD-2-Clause")

    version("main", branch="main")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("meson@1.0:", type="build")
    depends_on("python@3.9:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("rdma-core@32:")
    depends_on("nlohmann-json")
    depends_on("cli11@2:")
    depends_on("fmt@9:")
    depends_on("capstone")
    depends_on("elfutils")
    depends_on("libarchive")
    depends_on("pugixml")

    conflicts("%gcc@:10", msg="C++20 is needed")
    requires("target=x86_64:", msg="Layouts and the audit are of x86-64")

    def meson_args(self):
        return ["-Dtests=false", "-Dchecks=false"]
