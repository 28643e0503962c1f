#!/usr/bin/env bash
# repeat.sh N runs the short tier N times beside four busy loops, each time in another order and with other seeds of the property tests,
# and ends with the list of the tests that failed at least once. A test that is in it lies, or shows a defect that is rare.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=$1
results=$(mktemp -d)
loops=()
for _ in 1 2 3 4; do
	while :; do :; done &
	loops+=($!)
done
trap 'kill "${loops[@]}" 2>/dev/null || true' EXIT

for round in $(seq "$rounds"); do
	seed=$((RANDOM * 32768 + RANDOM))
	mkdir "$results/$round"
	SECONDS=0
	outcome=passed
	RESULTS=$results/$round make --no-print-directory test TESTFLAGS="-shuffle=$seed ${TESTFLAGS:-}" >"$results/$round/output" 2>&1 || outcome=FAILED
	echo "round $round of $rounds: $outcome in $SECONDS s, seed $seed"
done

# One line of JSON for each event; a failure of a package without a failed test, such as a race or a panic, has no Test.
failed=$(cat "$results"/*/*.json | { grep '"Action":"fail"' || true; } | sed -E 's/.*"Package":"([^"]*)"(.*"Test":"([^"]*)")?.*/\1 \3/' | sort | uniq -c)
if [ -n "$failed" ]; then
	echo "failed, with the number of rounds:"
	echo "$failed"
	echo "the output of each round is in $results"
	exit 1
fi
echo "$rounds of $rounds rounds passed"
rm -rf "$results"
