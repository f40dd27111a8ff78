# Sourced by ../demo and ../check after setup.sh: a server of the bundled model on a port of this machine.
lockstep=$root/build/release/lockstep
server="" url=""

# start_server LOG [FLAG...]: starts `lockstep serve` and waits until it is ready; sets $server (process) and $url.
start_server() {
  local log=$1
  shift
  : >"$log"
  url=""
  setsid "$lockstep" serve "$@" >"$log" 2>&1 </dev/null &
  server=$!
  for _ in $(seq 600); do
    url=$(sed -n 's|^lockstep serves .* at \(http://[^ ]*\)/v1 .*|\1|p' "$log")
    [ -z "$url" ] || return 0
    kill -0 "$server" 2>/dev/null || { cat "$log"; die "the server ended before it was ready"; }
    sleep 0.05
  done
  cat "$log"
  die "the server was not ready in 30 seconds"
}

# stop_server: as a supervisor does; fails where the server does not end well.
stop_server() {
  [ -n "$server" ] || return 0
  kill "$server" 2>/dev/null || true
  local status=0
  wait "$server" || status=$?
  server=""
  return $status
}
trap 'stop_server || true' EXIT
