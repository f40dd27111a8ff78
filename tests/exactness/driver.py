#!/usr/bin/env python3
"""Exactness of a live server: every reply's token hash equals its solo reference however it is served (docs/exactness.md).

driver.py URL [--cells NAME,...] [--scale small|full] [--lanes N] [--api-key KEY]
Each cell also asserts that it took the path it names (cached tokens, streams a round, evictions, stops from /metrics), else it is red. The
server must have no other clients meanwhile. Prints one line a cell and ends with `N passed, N failed`; exit 1 on a failure.
"""

import argparse
import random
import sys
import time

import cells  # noqa: F401  (registers its cells)
import chat_cells  # noqa: F401
import small_memory_cells
from client import Client
from run import CELLS, SCALES, Run

FULL_ONLY = {"chats_long"}


def listing():
    special = small_memory_cells.FLAGS
    lines = ["cells:"] + [f"  {name:22}{function.__doc__}" for name, function in CELLS.items()]
    lines += ["", "not run unless named, since they need a server started with"]
    lines += [f"  {name:22}{flags}" for name, flags in special.items()]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=listing())
    parser.add_argument("url")
    parser.add_argument("--cells", help="all that need no special server; chats_long at full scale only")
    parser.add_argument("--scale", choices=SCALES, default="small")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--lanes", type=int, help="the server's --parallel; found out where it is not given")
    parser.add_argument("--api-key")
    args = parser.parse_args()
    run = Run(Client(args.url, args.api_key), args.scale, args.seed, args.lanes)
    print(f"seed {args.seed}, scale {args.scale}", flush=True)
    passed = failed = 0
    usual = [c for c in CELLS if c not in small_memory_cells.FLAGS and (args.scale == "full" or c not in FULL_ONLY)]
    for name in args.cells.split(",") if args.cells else usual:
        begin = time.time()
        try:
            CELLS[name](run)
            passed += 1
            print(f"ok    {name} ({time.time() - begin:.1f} s)", flush=True)
        except (AssertionError, KeyError, OSError) as error:
            failed += 1
            print(f"FAIL  {name}: {error!r}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
