#!/usr/bin/env bash
# modules.sh MODULE... fails if a module by itself, as its go.mod says, has other versions of what it uses than the
# workspace, or misses one. With the same versions, a build by itself is the same build, so nothing needs to be built twice.
set -euo pipefail
cd "$(dirname "$0")/.."

used() { # MODULE
	go list -C "$1" -deps -f '{{with .Module}}{{if .Version}}{{.Path}} {{.Version}}{{end}}{{end}}' ./... | grep -v '^modelgateway/' | sort -u || true
}

different=0
for module; do
	if ! diff <(GOWORK=off used "$module") <(used "$module"); then
		echo "$module uses other versions (<) than the workspace (>)" >&2
		different=1
	fi
done
if [ $different = 1 ]; then
	echo "make the versions the same with: go work sync && make tidy" >&2
	exit 1
fi
