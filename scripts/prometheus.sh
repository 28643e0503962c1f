#!/usr/bin/env bash
# prometheus.sh prints a folder with prometheus and promtool: those of this machine, or else those of Debian's or Ubuntu's
# package, which it unpacks once for this user. The package is not installed, because an installation starts a server.
set -euo pipefail
folder=$("$(dirname "$0")/cache.sh")/tools/prometheus
mkdir -p "$folder"
if [ -x "$folder/prometheus" ] && [ -x "$folder/promtool" ]; then echo "$folder"; exit 0; fi
if command -v prometheus promtool >/dev/null; then
	ln -sf "$(command -v prometheus)" "$(command -v promtool)" "$folder/"
	echo "$folder"
	exit 0
fi
if ! command -v apt-get dpkg-deb >/dev/null; then
	echo "need prometheus and promtool: put them into PATH" >&2
	exit 1
fi
temporary=$(mktemp -d "$folder/unpack.XXXXXX")
trap 'rm -rf "$temporary"' EXIT
chmod 755 "$temporary" # for apt's own user
cd "$temporary"
echo "downloading the package prometheus (once)" >&2
if ! apt-get download -q prometheus >&2; then # the package lists are missing or too old
	as_root=(sudo -n)
	if [ "$(id -u)" = 0 ]; then as_root=(); fi
	"${as_root[@]}" apt-get update >&2
	apt-get download -q prometheus >&2
fi
dpkg-deb -x prometheus_*.deb unpacked
mv unpacked/usr/bin/prometheus unpacked/usr/bin/promtool "$folder/"
echo "$folder"
