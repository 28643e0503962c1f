#!/usr/bin/env bash
# node.sh DIRECTORY makes sure that Node.js of the version that the JavaScript
# tests need is there, and npm. It prints the folder that must come first in
# PATH for it, or nothing where PATH has one already. Where it is missing, it is
# installed: Debian's packages, and if their Node.js is too old, a newer one
# from the npm registry, below DIRECTORY.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
oldest=20
package_version=22.20.0

suits() { "$1" -e "process.exit(parseInt(process.versions.node) >= $oldest ? 0 : 1)" 2>/dev/null; }

own=$1/node_modules/node-linux-$(case $(uname -m) in aarch64 | arm64) echo arm64 ;; *) echo x64 ;; esac)
if command -v npm >/dev/null && suits node; then exit 0; fi
if [ -x "$own/bin/node" ] && command -v npm >/dev/null && suits "$own/bin/node"; then
	echo "$own/bin"
	exit 0
fi
if ! { command -v npm && command -v node; } >/dev/null; then
	"$here/need.sh" npm nodejs npm || "$here/need.sh" npm nodejs # some packages of nodejs bring npm along
fi
hash -r
if ! command -v npm >/dev/null || ! command -v node >/dev/null; then
	echo "no Node.js: install Node.js $oldest or newer with npm" >&2
	exit 1
fi
if suits node; then exit 0; fi
echo "Node.js here is $(node --version), the tests need $oldest: installing ${own##*/} $package_version from the npm registry" >&2
npm install --prefix "$1" --no-save --ignore-scripts --no-audit --no-fund --loglevel=error "${own##*/}@$package_version" >&2
suits "$own/bin/node"
echo "$own/bin"
