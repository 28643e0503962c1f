#!/usr/bin/env bash
# cache.sh prints the folder of this user that keeps what does not depend on a checkout: the tools of scripts/tools by
# version and the packages of npm by their lock file. A fresh clone has them without another build or download.
set -euo pipefail
echo "${XDG_CACHE_HOME:-$HOME/.cache}/modelgateway"
