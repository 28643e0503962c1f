#!/usr/bin/env bash
# lint.sh FILE... checks the Up part of migrations with squawk. One that is
# marked +goose NO TRANSACTION is judged as run without one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
faulty=0
for file in "$@"; do
	transaction=--assume-in-transaction
	if grep -q '^-- +goose NO TRANSACTION' "$file"; then transaction=--no-assume-in-transaction; fi
	sed '/^-- +goose Down/,$d' "$file" |
		"$here/node_modules/.bin/squawk" --config "$here/squawk.toml" --reporter gcc "$transaction" --stdin-filepath "$file" || faulty=1
done
exit $faulty
