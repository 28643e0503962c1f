#!/bin/sh
# make-secrets.sh makes the secrets of compose.yaml unless they exist, and gives the spools to the user of the proxies. Every
# container that mounts the volume can read all of them, so it is for an evaluation only.
set -eu
umask 022

# make FILE TEXT writes a secret once: as long as Postgres has its data, the others must not change either.
make() { [ -e "/secrets/$1" ] || printf '%s' "$2" >"/secrets/$1"; }
key() { head -c 32 /dev/urandom | base64; }
text() { key | tr -d '+/=\n'; }

make postgres-password "$(text)"
make postgres-url "postgres://postgres:$(cat /secrets/postgres-password)@postgres:5432/modelgateway?sslmode=disable"
make controlplane-nats-password "$(text)"
make dataplane-nats-password "$(text)"
make pepper "$(text)"
make fleet-key "$(key)"
make master-key "$(key)"
make bootstrap-token "$(text)"
chown 65532:65532 /spool/1 /spool/2
