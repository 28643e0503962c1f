#!/usr/bin/env bash
# secrets.sh [DIRECTORY] searches the files of a git work tree, those that git ignores
# excepted, for secrets. The rules are those of gitleaks and of .gitleaks.toml.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
cd "${1:-$here}"
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
	if [ -f "$file" ]; then printf '%s\0' "$file"; fi
done | tar --create --null --files-from=- | tar --extract --directory="$copy"
cd "$copy"
"$("$here/scripts/tool.sh" gitleaks)" dir . --config "$here/.gitleaks.toml" --no-banner --no-color --redact --verbose --log-level=warn
