#!/usr/bin/env bash
# peers.sh [FLAG...] runs the bench of the data plane (make bench/proxy) with other gateways as further columns. FLAGs are those
# of proxybench.
#
# PEERS_DIR is a folder with a folder for each peer that you have, with its program, built by you as its documents say:
#
#     gpt-load/gpt-load  bifrost/bifrost-http  gomodel/gomodel  one-api/one-api  new-api/new-api
#
# A peer that is missing or does not start is left out. Each gets an empty folder, databases of SQLite in it, and the bench's
# provider; messages, and logs to a database that are no bills, are off as far as it has switches. Peers with billing run twice,
# as they ship ("billing") and with as little of it as their settings allow:
#
#     Bifrost             a virtual key with a budget; without any
#     GoModel             usage records; none
#     one-api, new-api    each request changes quotas and writes a record; sums each 5 s, and no records
#
# The script was tried with gpt-load 1.4.9, Bifrost 1.4.19, GoModel 0.1.22, one-api 0.6.11 and new-api 0.6.3; their interfaces
# change. GoModel, one-api and new-api listen on all addresses: use a machine that others do not reach. one-api and new-api get
# the files of their tokenizer from the internet, or from the folder TIKTOKEN_CACHE_DIR. Bifrost counts costs only if the URL
# BIFROST_PRICES has a list of prices with the model:
#
#     {"bench": {"provider": "openai", "mode": "chat", "input_cost_per_token": 1e-8, "output_cost_per_token": 2e-8}}
set -euo pipefail
cd "$(dirname "$0")/.."
programs=$(cd "${PEERS_DIR:?is not set: the folder with the programs of the peers}" && pwd)
port=${PEERS_PORT:-19400} # that of the provider; the peers have the next ones
provider=127.0.0.1:$port
admin=benchbenchbenchbenchbenchbench # the key of administrators, and of clients where they can have the same
work=$(mktemp -d)
pids=()
peers=()

finish() {
	local pid
	for pid in "${pids[@]}"; do
		kill "$pid" 2>/dev/null || grep -Em 2 '^(panic|fatal error)' "$work/$pid" >&2 || true # it has ended before
	done
	wait
	rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

start() { # NAME=VALUE... PROGRAM ARGUMENT... starts a peer in its folder and waits until it answers
	(cd "$folder" && exec env "$@") >"$folder/log" 2>&1 &
	pid=$!
	pids+=("$pid")
	ln -s "$folder/log" "$work/$pid"
	for _ in {1..300}; do
		if curl -s -o "$folder/first" "http://127.0.0.1:$port/"; then return; fi
		if ! kill -0 "$pid" 2>/dev/null; then break; fi
		sleep .1
	done
	tail "$folder/log" >&2
	return 1
}

call() { # METHOD PATH BODY calls the peer's API for administrators
	curl -fsS -X "$1" "http://127.0.0.1:$port$2" -H "Authorization: $scheme$admin" -H 'New-Api-User: 1' \
		-b "$folder/cookies" -c "$folder/cookies" -H 'Content-Type: application/json' ${3:+-d "$3"} >"$folder/answer"
}

gpt-load() {
	scheme='Bearer '
	path=/proxy/bench
	start HOST=127.0.0.1 PORT="$port" AUTH_KEY="$admin" MAX_CONCURRENT_REQUESTS=2000 LOG_LEVEL=error "$program" &&
		call PUT /api/settings '{"request_log_write_interval_minutes":1440}' && # it has no switch
		call POST /api/groups '{"name":"bench","channel_type":"openai","test_model":"bench",
			"upstreams":[{"url":"http://'"$provider"'","weight":1}],"config":{"max_idle_conns":1000,"max_idle_conns_per_host":1000}}' &&
		call POST /api/keys/add-multiple '{"group_id":1,"keys_text":"sk-provider"}'
}

bifrost() {
	local budget=
	path=/openai
	if $billing; then
		key=sk-bf-bench # a virtual key begins so
		budget='"governance": {"budgets": [{"id": "b", "max_limit": 1000000, "reset_duration": "1M"}], "virtual_keys":
			[{"id": "v", "name": "bench", "value": "sk-bf-bench", "is_active": true, "budget_id": "b"}]},'
	fi
	cat >"$folder/config.json" <<-END
		{"\$schema": "https://www.getbifrost.ai/schema", "logs_store": {"enabled": false}, $budget
		"framework": {"pricing": {${BIFROST_PRICES:+"\"pricing_url\": \"$BIFROST_PRICES\""}}},
		"client": {"enable_logging": false, "enforce_auth_on_inference": $billing},
		"providers": {"openai": {"network_config": {"base_url": "http://$provider"},
			"keys": [{"name": "bench", "value": "sk-provider", "models": ["bench"], "weight": 1}]}}}
	END
	start "$program" -host 127.0.0.1 -port "$port" -app-dir "$folder" -log-level error
}

gomodel() {
	start PORT="$port" GOMODEL_MASTER_KEY="$admin" OPENAI_API_KEY=sk-provider OPENAI_BASE_URL="http://$provider/v1" OPENAI_MODELS=bench \
		CONFIGURED_PROVIDER_MODELS_MODE=allowlist CIRCUIT_BREAKER_FAILURE_THRESHOLD=1000000 LOG_LEVEL=error USAGE_ENABLED="$billing" \
		"$program" # clients that go away at the end of a measurement count as failures of the provider
}

one-api() {
	start PORT="$port" SQLITE_PATH=bench.db MEMORY_CACHE_ENABLED=true SYNC_FREQUENCY=10 BATCH_UPDATE_ENABLED="$without" \
		INITIAL_ROOT_TOKEN="$admin" INITIAL_ROOT_ACCESS_TOKEN="$admin" "$program" --log-dir= && quotas
}

new-api() {
	start PORT="$port" SQLITE_PATH=bench.db MEMORY_CACHE_ENABLED=true SYNC_FREQUENCY=10 BATCH_UPDATE_ENABLED="$without" \
		"$program" --log-dir= &&
		call POST /api/setup '{"username":"root","password":"'"$admin"'","confirmPassword":"'"$admin"'"}' &&
		call POST /api/user/login '{"username":"root","password":"'"$admin"'"}' && quotas &&
		call PUT /api/option/ '{"key":"DataExportEnabled","value":"'"$billing"'"}' &&
		call POST /api/token/ '{"name":"bench","expired_time":-1,"unlimited_quota":true}' &&
		call GET '/api/token/?p=0&size=10' && key=$(sed -n 's/.*"key":"\([^"]*\)".*/\1/p' "$folder/answer")
}

quotas() { # gives one-api or new-api the provider and a price
	call POST /api/channel/ '{"type":1,"name":"bench","key":"sk-provider","base_url":"http://'"$provider"'",
		"models":"bench","group":"default"}' &&
		call PUT /api/option/ '{"key":"ModelRatio","value":"{\"bench\":0.01}"}' &&
		call PUT /api/option/ '{"key":"LogConsumeEnabled","value":"'"$billing"'"}'
}

add() { # NAME PROGRAM BILLING adds a peer, whose function has the name of its folder
	program=$programs/$2
	billing=$3
	without=$([ "$billing" = true ] && echo false || echo true)
	key=$admin
	scheme=
	path=
	port=$((port + 1))
	folder=$work/$port
	mkdir "$folder"
	if [ ! -x "$program" ]; then
		echo "peers.sh: left out $1: there is no program $program" >&2
	elif "${2%%/*}"; then
		peers+=(-peer "$1=http://127.0.0.1:$port$path,$key,$pid")
	else
		echo "peers.sh: left out $1: it does not start" >&2
	fi
}

mkdir -p bin && go build -o bin/proxybench ./scripts/cmd/proxybench
add gpt-load gpt-load/gpt-load false
add Bifrost bifrost/bifrost-http false
add 'Bifrost, billing' bifrost/bifrost-http true
add GoModel gomodel/gomodel false
add 'GoModel, billing' gomodel/gomodel true
add one-api one-api/one-api false
add 'one-api, billing' one-api/one-api true
add new-api new-api/new-api false
add 'new-api, billing' new-api/new-api true
printf '%s\n' "${peers[@]}" >&2
sleep 11 # one-api and new-api read their new settings
bin/proxybench -provider "$provider" "${peers[@]}" "$@"
