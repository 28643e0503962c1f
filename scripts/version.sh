#!/usr/bin/env bash
# version.sh prints the version of the commit: its tag without the v or, without a tag, the chart's version with -dev.g and
# the commit. A version of changed files ends with .dirty. It is a semantic version and a valid tag of an image.
set -euo pipefail
cd "$(dirname "$0")/.."
if tag=$(git describe --tags --exact-match --match 'v[0-9]*' 2>/dev/null); then
	version=${tag#v}
	separator=-
else
	version=$(sed -n 's/^version: *//p' deploy/helm/modelgateway/Chart.yaml)-dev.g$(git rev-parse --short=12 HEAD)
	separator=.
fi
if [ -n "$(git status --porcelain --untracked-files=no)" ]; then version=$version${separator}dirty; fi
echo "$version"
