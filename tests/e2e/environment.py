#!/usr/bin/env python3
"""Rows of environment variables against the installed libmlx5: a native one is
read by it, one without effect is not. [rows:kind=environment]

    environment.py SOURCE_ROOT LIBRARY

    [row:env_mlx5_shut_up_bf] [row:env_mlx5_single_threaded] [row:env_mlx5_stall_cq_dec_step]
    [row:env_mlx5_stall_cq_inc_step] [row:env_mlx5_stall_cq_poll] [row:env_mlx5_stall_cq_poll_max]
    [row:env_mlx5_stall_cq_poll_min] [row:env_mlx5_stall_num_loop] [row:contig_env_huge_cq]
    [row:contig_env_cq_alloc_type] [row:contig_env_qp_alloc_type] [row:contig_env_qp_huge_key]
    [row:inlrecv_env] [row:umr_noninline_env_prefer_bf]
"""

import re
import subprocess
import sys
from pathlib import Path

ROW = re.compile(r'^IBVEXP_FEATURE\(\w+,\s*"([A-Z0-9_]+)",\s*\w+,\s*environment,\s*environment,\s*'
                 r'(\w+),', re.M)


def is_read(name, strings):
    if name in strings:
        return True
    # Names are put together: "MLX_QP" and "%s_ALLOC_TYPE".
    return any(name[:i] in strings and "%s" + name[i:] in strings
               for i in range(1, len(name)) if name[i] == "_")


def main():
    root, library = sys.argv[1:]
    data = subprocess.run(["cat", library], check=True, capture_output=True).stdout
    strings = set(s.decode() for s in re.findall(rb"[\x20-\x7e]{4,}", data))
    failed, checked = False, 0
    for path in sorted((Path(root) / "src/table/features").glob("*.def")):
        for name, verdict in ROW.findall(path.read_text(encoding="utf-8")):
            if verdict not in ("native", "noop"):
                continue
            checked += 1
            if is_read(name, strings) != (verdict == "native"):
                print(f"{name}: the row says {verdict}, libmlx5 disagrees")
                failed = True
    print(f"{checked} variables checked")
    return 1 if failed or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
