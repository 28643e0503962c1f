#!/usr/bin/env bash
# vulncheck.sh MODULE... reports known vulnerabilities in what the modules' packages call.
#
# GOVULNDB is the URL of the database: https://…, or file:///… for a copy. If it is set,
# a database that cannot be read is an error. If it is not set, the database is that of
# the Go project or, where that cannot be reached, a copy in ../NAME/vulndb. Where there
# is neither, the script says that nothing was checked, and succeeds.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/need.sh curl curl ca-certificates
public=https://vuln.go.dev

readable() { # URL
	case $1 in
	file://*) [ -s "${1#file://}/index/modules.json" ] ;;
	*) curl --silent --fail --head --location --max-time 20 --output /dev/null "$1/index/db.json" ;;
	esac
}

if [ -n "${GOVULNDB:-}" ]; then
	database=$GOVULNDB
	readable "$database" || { echo "the vulnerability database GOVULNDB=$database cannot be read" >&2; exit 1; }
else
	database=
	for candidate in "$public" $(printf 'file://%s\n' "$PWD"/../*/vulndb); do
		if readable "$candidate"; then
			database=$candidate
			break
		fi
	done
fi
if [ -z "$database" ]; then
	echo "NOT CHECKED for known vulnerabilities: $public cannot be reached and there is no copy; GOVULNDB=file:///… names one" >&2
	exit 0
fi
echo "known vulnerabilities are those of $database" >&2
# govulncheck does not start in a folder without go.mod, as that of the workspace is, so
# that the modules' paths are those from scripts.
modules=("${@/#/../}")
exec "$(scripts/tool.sh govulncheck)" -C scripts -db "$database" "${modules[@]/%//...}"
