#!/bin/sh
# update.sh VERSION: fetch a version of uPlot from the npm registry. Then put the checksums that it prints into static_test.go.
set -eu
cd "$(dirname "$0")"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
file=$(cd "$folder" && npm pack --silent "uplot@$1")
tar -xzf "$folder/$file" -C "$folder"
cp "$folder/package/dist/uPlot.esm.js" "$folder/package/dist/uPlot.min.css" "$folder/package/LICENSE" .
sha256sum uPlot.esm.js uPlot.min.css LICENSE
