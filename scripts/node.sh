#!/usr/bin/env bash
# node.sh [OLDEST] installs npm and the version of Node.js that the JavaScript tests need, if they are missing: from the packages of
# Debian and, if their Node.js is too old, the newer one whose hash is in scripts/tools/node/package-lock.json. It prints
# the folder to put first into PATH, or nothing if PATH already has a suitable Node.js.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
oldest=${1:-20}

is_new_enough() { "$1" -e "process.exit(parseInt(process.versions.node) >= $oldest ? 0 : 1)" 2>/dev/null; }

if command -v npm >/dev/null && is_new_enough node; then exit 0; fi
if ! { command -v npm && command -v node; } >/dev/null; then
	"$here/need.sh" npm nodejs npm || "$here/need.sh" npm nodejs # some nodejs packages include npm
fi
hash -r
if ! command -v npm >/dev/null || ! command -v node >/dev/null; then
	echo "no Node.js: install Node.js $oldest or newer with npm" >&2
	exit 1
fi
if is_new_enough node; then exit 0; fi
own=node-linux-$(case $(uname -m) in aarch64 | arm64) echo arm64 ;; *) echo x64 ;; esac)
"$here/npmci.sh" "$here/tools/node" "node_modules/$own/bin/node"
program=$here/tools/node/node_modules/$own/bin
if ! is_new_enough "$program/node"; then
	echo "Node.js is $(node --version), the tests need $oldest or newer, and $own does not run here" >&2
	exit 1
fi
echo "$program"
