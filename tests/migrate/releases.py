"""Other releases of rdma-core whose headers are at hand: those that `./run test releases`
has built, or the folders that RDMA_CORE_INCLUDE names."""

import os
from pathlib import Path

# The oldest whose mlx5dv.h has all that the helpers need.
OLDEST = 36


def headers():
    named = os.environ.get("RDMA_CORE_INCLUDE")
    if named is not None:
        found = [Path(folder) for folder in named.split(":") if folder]
        assert all((folder / "infiniband/mlx5dv.h").exists() for folder in found), named
        return found
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "libibverbs_exp/rdma-core")
    roots = Path(os.environ.get("RDMA_CORE_ROOTS") or cache)
    return sorted(root / "build/include" for root in roots.glob("[0-9]*")
                  if root.name.isdigit() and int(root.name) >= OLDEST
                  and (root / "build/include/infiniband/mlx5dv.h").exists())
