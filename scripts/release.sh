#!/usr/bin/env bash
# release.sh runs everything that must hold before a release, writes the files of the release, and says beside them in
# checks.txt what ran, on which commit and for how long. It stops at the first step that fails.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -n "$(git status --porcelain)" ]; then
	echo "a release is made from a commit; this tree has changes" >&2
	exit 1
fi
export CI=1
unset OFFLINE
checks=$(mktemp)
trap 'rm -f "$checks"' EXIT
for step in verify lint test test/long; do
	SECONDS=0
	make --no-print-directory "$step"
	echo "$(git rev-parse HEAD) make $step passed in $SECONDS s" | tee -a "$checks"
done
make --no-print-directory release/files
mv "$checks" bin/release/checks.txt
chmod 644 bin/release/checks.txt
cat bin/release/checks.txt
