#!/bin/sh
# demo.sh applies the catalog of the simulator, creates an account with money and a key, sends a request and prints the answer
# and its receipt. Each run makes an account of its own.
set -eu
token=$(cat "$TOKEN_FILE")
headers=$(mktemp)

# admin METHOD PATH ARGUMENT... calls the admin API.
admin() {
	method=$1 path=$2
	shift 2
	curl --silent --show-error --fail-with-body --request "$method" --header "Authorization: Bearer $token" "$@" "$ADMIN_URL/admin/v1$path"
}
# post PATH JSON MEMBER prints a member of the answer.
post() { admin POST "$1" --header 'Content-Type: application/json' --data "$2" | sed -n "s/.*\"$3\": *\"\([^\"]*\)\".*/\1/p" | head -n 1; }

sed "s|\${PROVIDERSIM_URL}|$PROVIDERSIM_URL|" "$CATALOG" |
	admin PUT /catalog --header 'Content-Type: application/yaml' --data-binary @- --retry 30 --retry-all-errors --retry-delay 1 >/dev/null
account=$(post /accounts '{"name": "Demo"}' id)
post "/accounts/$account/credits" "{\"amount\": \"10.00\", \"kind\": \"payment\", \"reference\": \"demo-$account\"}" id >/dev/null
key=$(post "/accounts/$account/keys" '{"name": "demo"}' secret)

echo "request:"
curl --silent --show-error --fail-with-body --retry 30 --retry-all-errors --retry-delay 1 --dump-header "$headers" \
	"$API_URL/v1/chat/completions" --header "Authorization: Bearer $key" \
	--data '{"model": "demo-chat", "messages": [{"role": "user", "content": "Hello"}]}'
echo
echo "receipt:"
request=$(sed -n 's/^[Xx]-[Rr]equest-[Ii]d: //p' "$headers" | tail -n 1 | tr -d '\r')
admin GET "/usage/$request" --retry 30 --retry-all-errors --retry-delay 1
echo
echo "your key for http://127.0.0.1:8080/v1: $key"
