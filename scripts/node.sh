#!/usr/bin/env bash
# node.sh DIRECTORY installs npm and the version of Node.js that the JavaScript tests
# need, if they are missing: from the packages of Debian and, if their Node.js is too
# old, a newer one from the npm registry in DIRECTORY. It prints the folder to put
# first into PATH, or nothing if PATH already has a suitable Node.js.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
oldest=20
package_version=22.20.0

is_new_enough() { "$1" -e "process.exit(parseInt(process.versions.node) >= $oldest ? 0 : 1)" 2>/dev/null; }

own=$1/node_modules/node-linux-$(case $(uname -m) in aarch64 | arm64) echo arm64 ;; *) echo x64 ;; esac)
if command -v npm >/dev/null && is_new_enough node; then exit 0; fi
if [ -x "$own/bin/node" ] && command -v npm >/dev/null && is_new_enough "$own/bin/node"; then
	echo "$own/bin"
	exit 0
fi
if ! { command -v npm && command -v node; } >/dev/null; then
	"$here/need.sh" npm nodejs npm || "$here/need.sh" npm nodejs # some nodejs packages include npm
fi
hash -r
if ! command -v npm >/dev/null || ! command -v node >/dev/null; then
	echo "no Node.js: install Node.js $oldest or newer with npm" >&2
	exit 1
fi
if is_new_enough node; then exit 0; fi
echo "Node.js is $(node --version) and the tests need $oldest or newer: installing ${own##*/} $package_version from the npm registry" >&2
npm install --prefix "$1" --no-save --ignore-scripts --no-audit --no-fund --loglevel=error "${own##*/}@$package_version" >&2
is_new_enough "$own/bin/node"
echo "$own/bin"
