#!/usr/bin/env bash
# need.sh COMMAND PACKAGE... installs the Debian packages if COMMAND is missing, or
# prints the commands to run if it may not install packages.
set -euo pipefail
command=$1
shift
if command -v "$command" >/dev/null; then exit 0; fi
if ! command -v apt-get >/dev/null; then
	echo "need $command: install it with this system's package manager (on Debian: $*)" >&2
	exit 1
fi
if [ "$(id -u)" = 0 ]; then
	as_root=()
elif sudo -n true 2>/dev/null; then
	as_root=(sudo -n)
else
	printf 'need %s; run:\n    sudo apt-get update\n    sudo apt-get install -y --no-install-recommends %s\n' "$command" "$*" >&2
	exit 1
fi
echo "installing $* (for $command)" >&2
"${as_root[@]}" apt-get update >&2
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >&2
