#!/usr/bin/env bash
# tool.sh NAME... builds the tools in the versions that scripts/tools pins, once per version and version of Go for all
# checkouts of this user, and prints the path of each.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=$("$here/cache.sh")/tools
mkdir -p "$cache"

build() { # NAME MODULE PACKAGE
	local module=$here/tools/$2 version program
	version=$({ go env GOVERSION GOOS GOARCH; cat "$module/go.mod" "$module/go.sum"; } | sha256sum | cut -c1-16)
	program=$cache/$1-$version/$1
	if [ ! -x "$program" ]; then
		echo "building $3 (once per version)" >&2
		local temporary
		temporary=$(mktemp -d "$cache/build.XXXXXX")
		GOWORK=off go build -C "$module" -o "$temporary/$1" "$3"
		mkdir -p "${program%/*}"
		mv "$temporary/$1" "$program" # complete or not there, also if two checkouts build at the same time
		rmdir "$temporary"
	fi
	echo "$program"
}

for name; do
	case $name in
	golangci-lint) build "$name" lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint ;;
	gotestsum) build "$name" lint gotest.tools/gotestsum ;;
	govulncheck) build "$name" audit golang.org/x/vuln/cmd/govulncheck ;;
	gitleaks) build "$name" audit github.com/zricethezav/gitleaks/v8 ;;
	sqlc) build "$name" gen github.com/sqlc-dev/sqlc/cmd/sqlc ;;
	oapi-codegen) build "$name" gen github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen ;;
	helm) build "$name" helm helm.sh/helm/v3/cmd/helm ;;
	kubeconform) build "$name" helm github.com/yannh/kubeconform/cmd/kubeconform ;;
	compose-spec) build "$name" compose github.com/compose-spec/compose-go/v2/cmd ;;
	prometheus | promtool) echo "$("$here/prometheus.sh")/$name" ;;
	*) echo "tool.sh: there is no tool $name in scripts/tools" >&2; exit 2 ;;
	esac
done
