#!/usr/bin/env bash
# Two builds with a planted fault each; the exactness driver must be red on both. Slow (two builds), so it is run by hand.
set -euo pipefail
cd "$(dirname "$0")/../.."
missed=0
for plant in SNAPSHOT_LATE ROW_TOO_FAR; do
  cmake -S . -B build/planted -G Ninja -DCMAKE_BUILD_TYPE=Release -DLOCKSTEP_TESTS=OFF -DLOCKSTEP_PLANT=$plant >/dev/null
  cmake --build build/planted --target lockstep >/dev/null
  log=$(mktemp)
  build/planted/lockstep serve --port 0 --parallel 16 --log-level warn >"$log" 2>&1 &
  server=$!
  for _ in $(seq 100); do
    url=$(sed -n 's|^lockstep serves .* at \(http://[^ ]*\)/v1 .*|\1|p' "$log")
    [ -z "$url" ] || break
    sleep 0.1
  done
  if python3 tests/exactness/driver.py "$url" --lanes 16; then
    echo "$plant: MISSED, the driver stayed green"
    missed=1
  else
    echo "$plant: red as planted"
  fi
  kill $server
  wait $server || true
done
exit $missed
