#!/usr/bin/env bash
# npmci.sh DIRECTORY PROGRAM installs the packages of DIRECTORY's package-lock.json with
# their hashes checked, unless they are installed. No script of a package runs. PROGRAM, a
# path or pattern in DIRECTORY, must exist afterwards: npm leaves out an optional package,
# as those of one platform are, if its download fails or has another hash.
set -euo pipefail
cd "$1"
mark=node_modules/.installed
if cmp -s package-lock.json "$mark"; then exit 0; fi
echo "installing the packages of ${PWD##*/}/package-lock.json from the npm registry" >&2
npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2
if ! compgen -G "$2" >/dev/null; then
	echo "npm has not installed $2: there is none for this machine, or its download failed or does not have the hash of the lock file" >&2
	exit 1
fi
cp package-lock.json "$mark"
