#!/usr/bin/env bash
# npmci.sh DIRECTORY PROGRAM installs the packages of DIRECTORY's package-lock.json with their hashes checked, once for all
# checkouts of this user, and links them as DIRECTORY/node_modules. No script of a package runs. PROGRAM, a path or pattern
# in DIRECTORY, must exist afterwards: npm leaves out an optional package, as those of one platform are, if its download
# fails or has another hash.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$1"
cache=$("$here/cache.sh")/npm
installed=$cache/$(sha256sum <package-lock.json | cut -c1-16)
if [ ! -d "$installed" ]; then
	echo "installing the packages of ${PWD##*/}/package-lock.json from the npm registry" >&2
	mkdir -p "$cache"
	temporary=$(mktemp -d "$cache/install.XXXXXX")
	trap 'rm -rf "$temporary"' EXIT
	cp package.json package-lock.json "$temporary/"
	(cd "$temporary" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2)
	if ! (cd "$temporary" && compgen -G "$2" >/dev/null); then
		echo "npm has not installed $2: there is none for this machine, or its download failed or does not have the hash of the lock file" >&2
		exit 1
	fi
	mv -T "$temporary" "$installed" 2>/dev/null || [ -d "$installed" ] # another checkout may have been faster
fi
if [ -d node_modules ] && [ ! -L node_modules ]; then rm -rf node_modules; fi
ln -sfn "$installed/node_modules" node_modules
