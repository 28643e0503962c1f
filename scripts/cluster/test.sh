#!/usr/bin/env bash
# test.sh COMMIT installs the images of a commit in a cluster of kube.sh, upgrades to those of this folder, and so on
# (scripts/cmd/testcluster). It prints the figures of each step. STEPS='rotate|restore' plays only the steps with such names,
# besides the install.
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=$PWD/.cache/cluster
if [ "$(id -u)" != 0 ]; then
	echo "test.sh: the kubelet needs root" >&2
	exit 1
fi
platform=linux/$(go env GOARCH)

# images FOLDER VERSION COMMIT builds the images of the planes from a folder.
images() {
	rm -rf "$cache/images/$2"
	go run ./scripts/cmd/images -root "$1" -out "$cache/images/$2" -platforms "$platform" -version "$2" -commit "$3" \
		-time "$(TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ "$3")" \
		./controlplane/cmd/controlplane ./dataplane/cmd/dataplane >/dev/null
}

scripts/cluster/kube.sh build
previous=$(git rev-parse "$1^{commit}")
rm -rf "$cache/previous"
mkdir -p "$cache/previous"
git archive "$previous" | tar -x -C "$cache/previous"
images "$cache/previous" 0.0.1 "$previous"
images . 0.0.2 "$(git rev-parse HEAD)"
rm -rf "$cache/previous"
go build -o "$cache/bin/" ./scripts/cmd/testcluster
trap 'scripts/cluster/kube.sh down' EXIT
scripts/cluster/kube.sh up
scripts/cluster/kube.sh load "$cache"/images/0.0.*/*.tar
echo "upgrade from $(git describe --always --tags "$previous") to $(scripts/version.sh), on $(nproc) cores"
scripts/cluster/kube.sh run "$cache/bin/testcluster" -dir "$cache/data" -previous 0.0.1 -next 0.0.2 -steps "${STEPS:-.}"
