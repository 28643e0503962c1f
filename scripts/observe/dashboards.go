package observe

import (
	"fmt"
	"strings"
)

// Dashboards returns the dashboards of the chart.
func Dashboards() []Dashboard {
	return []Dashboard{service(), refusals(), providers(), money(), fleet(), jobs(), runtime()}
}

// interval is Grafana's variable for the window of a rate: at least four scrapes.
const interval = "$__rate_interval"

func graph(title, unit, description string, queries ...Query) Panel {
	return Panel{
		Title:       title,
		Unit:        unit,
		Description: description,
		Queries:     queries,
	}
}

func table(title, unit, description string, query Query) Panel {
	return Panel{
		Title:       title,
		Unit:        unit,
		Description: description,
		Queries:     []Query{query},
		Table:       true,
	}
}

// rate returns the sum of the rates of a counter by labels, separated by commas. The metric may have matchers.
func rate(metric, by string) string { return sum("rate("+metric+"["+interval+"])", by) }

func sum(expr, by string) string { return aggregate("sum", expr, by) }

func highest(expr, by string) string { return aggregate("max", expr, by) }

func aggregate(operator, expr, by string) string {
	if by == "" {
		return operator + "(" + expr + ")"
	}
	return operator + " by (" + by + ") (" + expr + ")"
}

// legend returns the legend that shows labels, separated by commas.
func legend(labels string) string {
	var parts []string
	for label := range strings.SplitSeq(labels, ",") {
		parts = append(parts, "{{"+strings.TrimSpace(label)+"}}")
	}
	return strings.Join(parts, " ")
}

// rates returns the query for the rates of a counter by labels.
func rates(metric, by string) Query { return Query{rate(metric, by), legend(by)} }

// share returns the share that the rates of one selection have in those of another, by labels.
func share(part, whole, by string) string { return rate(part, by) + " / " + rate(whole, by) }

// quantiles returns one query for each percentile of a histogram.
func quantiles(histogram string, percentiles ...int) []Query {
	var queries []Query
	for _, p := range percentiles {
		expr := fmt.Sprintf("histogram_quantile(0.%02d, %s)", p, rate(histogram+"_bucket", "le"))
		queries = append(queries, Query{expr, fmt.Sprintf("p%d", p)})
	}
	return queries
}

// quantilesBy returns the query for one percentile of a histogram by labels.
func quantilesBy(histogram string, percentile int, by string) Query {
	return Query{fmt.Sprintf("histogram_quantile(0.%02d, %s)", percentile, rate(histogram+"_bucket", "le, "+by)), legend(by)}
}

func service() Dashboard {
	const failed = `(rate(mgw_requests_total{status=~"5.."}[%[1]s]) or rate(mgw_requests_total{outcome="failed"}[%[1]s]))`
	burn := func(window string) Query {
		return Query{fmt.Sprintf("(sum("+failed+") or vector(0)) / sum(rate(mgw_requests_total[%[1]s])) / 0.001", window), window}
	}

	return Dashboard{
		"mgw-service",
		"Service",
		"Reports whether customers are served, and how fast.",
		[]Row{
			{
				"Requests",
				[]Panel{
					graph(
						"Requests",
						"reqps",
						"Answered requests per second by class of the HTTP status.",
						Query{
							rate(`mgw_requests_total{status=~"2.."}`, ""),
							"2xx",
						},
						Query{rate(`mgw_requests_total{status=~"4.."}`, ""), "4xx"},
						Query{rate(`mgw_requests_total{status=~"5.."}`, ""), "5xx"},
					),
					graph(
						"Success rate",
						"percentunit",
						"Share of the requests that neither ended with a 5xx status nor broke off.",
						Query{
							fmt.Sprintf("1 - (sum("+failed+") or vector(0)) / sum(rate(mgw_requests_total[%[1]s]))", interval),
							"success",
						},
					),
					graph(
						"Error budget burn",
						"",
						"Failed share divided by that of an objective of 99.9 %. At 1 a month uses its budget exactly; at 14 an hour "+
							"uses 2 % of it.",
						burn("1h"),
						burn("6h"),
					),
					graph(
						"Requests by endpoint",
						"reqps",
						"Answered requests per second by endpoint.",
						rates("mgw_requests_total", "endpoint"),
					),
					graph(
						"Outcomes",
						"reqps",
						"Requests per second by outcome. A stream that breaks off has the status 200 and the outcome failed.",
						rates("mgw_requests_total", "outcome"),
					),
					graph("Stream ends", "reqps", "Ended streams per second by reason.", rates("mgw_stream_ends_total", "reason")),
					graph(
						"In flight",
						"",
						"Requests that are being handled now, by endpoint.",
						Query{sum("mgw_requests_in_flight", "endpoint"), "{{endpoint}}"},
					),
					graph(
						"Models",
						"reqps",
						"Requests per second by model and outcome.",
						rates("mgw_model_requests_total", "model, outcome"),
					),
					graph("Maintenance", "", "1 for the system, a provider or a model that is under maintenance.",
						Query{highest(`mgw_maintenance_active{scope!="route"}`, "scope, id"), "{{scope}} {{id}}"}),
				},
			},
			{
				"Times",
				[]Panel{
					graph(
						"Duration",
						"s",
						"Time from the arrival of a request to the end of its answer, streams included.",
						quantiles("mgw_request_duration_seconds", 50, 95, 99)...),
					graph("Time to first token", "s", "Time from the arrival of a request to the first bytes of its stream.",
						quantiles("mgw_time_to_first_token_seconds", 50, 95, 99)...),
					graph(
						"Own time",
						"s",
						"Time that the proxy itself adds to a request that is not a stream.",
						quantiles("mgw_request_overhead_seconds", 50, 99)...),
				},
			},
			{"Usage", []Panel{
				graph("Tokens", "", "Tokens per second by kind.", rates("mgw_tokens_total", "kind")),
				graph("Images", "", "Images per minute.", Query{"60 * " + rate("mgw_images_total", ""), "images per minute"}),
				graph("Tokens by model", "", "Tokens per second by model.", rates("mgw_tokens_total", "model")),
				graph("Held bodies", "bytes", "Bytes of request bodies and answers that proxies hold, and their budget.",
					Query{sum("mgw_body_bytes", ""), "held"}, Query{sum("mgw_body_budget_bytes", ""), "budget"},
					Query{sum("mgw_answer_file_bytes", ""), "answers in files"}),
				graph("Bodies that wait", "", "Large request bodies that wait for their turns at the processors.",
					Query{sum("mgw_body_turns_waiting", "instance"), "{{instance}}"}),
				graph("Streams that clients left", "reqps", "Streams per second whose client left, by how they were charged.",
					rates("mgw_left_streams_total", "rule")),
			}},
		},
	}
}

func refusals() Dashboard {
	var panels []Panel
	for _, r := range []struct{ status, title, description string }{
		{"401", "401: no valid key", "Requests per second without a valid API key, or with one of a suspended account, by code."},
		{"402", "402: balance exhausted", "Requests per second of accounts without enough money, by code."},
		{"403", "403: not allowed", "Requests per second of keys at their spend limit, by code."},
		{"404", "404: not found", "Requests per second for models, videos and paths that do not exist or are not granted, by code."},
		{"413", "413: too large", "Requests per second with a body over the limit, by code."},
		{"429", "429: rate limits", "Requests per second over the concurrency limit of an account, or refused by the provider's rate " +
			"limit, by code."},
		{"503", "503: unavailable", "Requests per second during maintenance, without an available route, or without a decision, by code."},
	} {
		panels = append(
			panels,
			graph(
				r.title,
				"reqps",
				r.description,
				Query{rate(`mgw_requests_total{status="`+r.status+`"}`, "code, endpoint"), "{{code}} {{endpoint}}"},
			),
		)
	}

	return Dashboard{
		"mgw-refusals",
		"Refusals",
		"Shows which requests are refused, and by whom.",
		[]Row{
			{"By status", panels},
			{
				"Ours and the providers'",
				[]Panel{
					graph(
						"429 to clients and from providers",
						"reqps",
						"429 answers to clients and rate limits of providers. Without the second, accounts reach their own limits.",
						Query{rate(`mgw_requests_total{status="429"}`, ""), "to clients"},
						Query{rate(`mgw_provider_attempts_total{outcome="rate_limit"}`, "provider"), "from {{provider}}"},
					),
					graph(
						"Reasons of the control plane",
						"reqps",
						"Requests per second that the control plane refused, by reason and by whose limit, slots or balance was short.",
						Query{rate("mgw_admission_refusals_total", "reason, scope"), "{{reason}} of the {{scope}}"},
					),
					graph(
						"Turns refused",
						"reqps",
						"Requests per second that were not sent to a rate-limited route, because other accounts had their turns.",
						rates("mgw_route_turns_refused_total", "route"),
					),
					graph(
						"Bodies refused",
						"reqps",
						"Bodies per second without room in the budget, by reason.",
						rates("mgw_body_refusals_total", "reason"),
					),
					graph(
						"Key loads",
						"reqps",
						"Key records read per second, by outcome and by whether the key has a valid MAC. Unknown keys without a MAC "+
							"are guesses or imported keys.",
						rates("mgw_key_loads_total", "outcome, mac"),
					),
				},
			},
		},
	}
}

func providers() Dashboard {
	return Dashboard{
		"mgw-providers",
		"Providers and routes",
		"Shows how each provider answers, and which routes get no calls.",
		[]Row{
			{
				"Providers",
				[]Panel{
					graph("Calls", "reqps", "Calls per second by provider.", rates("mgw_provider_attempts_total", "provider")),
					graph(
						"Share served",
						"percentunit",
						"Share of the calls to a provider that succeeded.",
						Query{
							share(`mgw_provider_attempts_total{outcome="ok"}`, "mgw_provider_attempts_total", "provider"),
							"{{provider}}",
						},
					),
					graph(
						"Errors",
						"reqps",
						"Failed calls per second by provider and error class. gateway_refused is a refusal of the gateway's own account.",
						Query{rate(`mgw_provider_attempts_total{outcome!="ok"}`, "provider, outcome"), "{{provider}} {{outcome}}"},
					),
				},
			},
			{
				"Times and failovers",
				[]Panel{
					graph("Time of an attempt", "s", "95th percentile of the time that an attempt waited for its provider, by provider.",
						quantilesBy("mgw_upstream_seconds", 95, "provider")),
					graph(
						"Time to first token",
						"s",
						"95th percentile of the time to the first bytes of a stream, by the provider that served it.",
						quantilesBy("mgw_time_to_first_token_seconds", 95, "provider"),
					),
					graph(
						"Failovers",
						"reqps",
						"Attempts per second that followed a failed one, by the provider and the error class of the failed one.",
						rates("mgw_failovers_total", "from, class"),
					),
					graph(
						"Calls ended by a time limit",
						"",
						"Calls within an hour that a time limit has ended, by provider and limit.",
						Query{sum("increase(mgw_call_timeouts_total[1h])", "provider, limit"), "{{provider}} {{limit}}"},
					),
					graph("Refused credentials", "", "1 for a credential that its provider refused when it was used last.",
						Query{highest("mgw_credential_refused", "provider, credential, reason"), "{{provider}} {{credential}} {{reason}}"}),
					graph(
						"Doubtful usage",
						"",
						"Answers within an hour whose provider reported no usage, or one in doubt. All but ambiguous ones are charged "+
							"by an estimate.",
						Query{sum("increase(mgw_usage_doubts_total[1h])", "provider, reason"), "{{provider}} {{reason}}"},
					),
				},
			},
			{
				"Routes",
				[]Panel{
					graph(
						"Circuit breakers",
						"",
						"State of the circuit breaker of a route that has failed: 0 closed, 1 half-open, 2 open, on the proxy that is "+
							"worst off.",
						Query{highest("mgw_route_breaker_state", "route"), "{{route}}"},
					),
					graph(
						"Share of cached input tokens",
						"percentunit",
						"Share of the input tokens that providers have read from their prompt caches, by route. One that falls means that "+
							"conversations do not stay where their cache is.",
						Query{
							share(`mgw_route_input_tokens_total{cache="hit"}`, "mgw_route_input_tokens_total", "route"),
							"{{route}}",
						},
					),
					graph("Openings", "", "Openings of circuit breakers within an hour, by route.",
						Query{sum("increase(mgw_route_breaker_openings_total[1h])", "route"), "{{route}}"}),
					graph(
						"Unpriced usage",
						"",
						"Answers within an hour whose provider reported usage without a price. The operator pays for it, and no "+
							"client does.",
						Query{sum("increase(mgw_unpriced_usage_total[1h])", "kind"), "{{kind}}"},
					),
					graph(
						"Members left out",
						"",
						"Calls within an hour that went without a member that the gateway adds, because the provider refuses it. A stream "+
							"without stream_options may report no usage.",
						Query{sum("increase(mgw_members_left_out_total[1h])", "provider, member"), "{{provider}} {{member}}"},
					),
				},
			},
		},
	}
}

func money() Dashboard {
	return Dashboard{
		"mgw-money",
		"Money",
		"Follows usage from the proxies' spools through settlement into the ledger, and shows whether the ledger is right.",
		[]Row{
			{
				"Charges",
				[]Panel{
					graph(
						"Charges",
						"",
						"Charges in currency units per minute, by model.",
						Query{"60 * " + rate("mgw_charged_total", "model"), "{{model}}"},
					),
					graph(
						"Reservations and charges",
						"",
						"Reservations of finished requests and their charges, in currency units per minute.",
						Query{
							"60 * " + rate("mgw_reserved_total", ""),
							"reserved",
						},
						Query{"60 * " + rate("mgw_charged_total", ""), "charged"},
					),
				},
			},
			{
				"Margin",
				[]Panel{
					graph(
						"Margin by route",
						"",
						"What was charged for the calls of each route less what they cost, in currency units per minute; "+
							"below zero it loses money.",
						Query{
							"60 * (" + rate("mgw_route_charged_total", "route") + " - " +
								rate("mgw_route_provider_cost_total", "route") + ")",
							"{{route}}",
						},
					),
					graph(
						"Charged and provider cost",
						"",
						"What was charged for all calls whose provider cost is known, and what they cost, in currency units per minute.",
						Query{
							"60 * " + rate("mgw_route_charged_total", ""),
							"charged",
						},
						Query{"60 * " + rate("mgw_route_provider_cost_total", ""), "provider cost"},
					),
					graph("Calls of unknown cost", "reqps", "Settled calls per second whose route had no provider_price for them.",
						Query{rate("mgw_provider_cost_unknown_total", ""), "unknown"}),
				},
			},
			{
				"Balances",
				[]Panel{
					graph(
						"Accounts",
						"",
						"Accounts by the state of their balance: negative, exhausted, low or sufficient.",
						Query{highest("mgw_accounts", "state"), "{{state}}"},
					),
					graph("Negative balances", "", "Sum of the negative balances, in currency units: credit that nobody wanted to give.",
						Query{highest("mgw_negative_balance", ""), "owed"}),
					graph("Charges beyond what was granted", "", "Charges within a day beyond what had been granted, and after "+
						"the session of the proxy had closed, in currency units.",
						Query{highest("increase(mgw_balance_overrun[1d])", ""), "beyond"},
						Query{highest("increase(mgw_balance_late_charges[1d])", ""), "late"}),
				},
			},
			{
				"Usage on its way",
				[]Panel{
					graph("Oldest unsettled usage", "s", "Time since the request of the oldest unsettled usage event finished, by proxy.",
						Query{highest("mgw_usage_oldest_unsettled_seconds", "instance"), "{{instance}}"}),
					graph("Spool", "", "Running requests and unsettled usage events in the spool of each proxy.",
						Query{highest("mgw_spool_used_capacity", "instance"), "{{instance}}"}),
					graph(
						"Published",
						"reqps",
						"Usage events per second that reached the usage stream, and messages that it did not acknowledge.",
						Query{
							rate("mgw_usage_published_total", ""),
							"published",
						},
						Query{rate("mgw_usage_publish_failures_total", ""), "failed"},
					),
					graph(
						"Usage stream",
						"",
						"Messages of the usage stream that are not settled.",
						Query{highest("mgw_usage_stream_pending_messages", ""), "pending"},
					),
					graph(
						"Size of the usage stream",
						"bytes",
						"Size of the usage stream on a NATS server, and its maximum; a maximum of 0 means that only the disk limits it.",
						Query{highest("mgw_usage_stream_bytes", ""), "size"},
						Query{highest("mgw_usage_stream_max_bytes", ""), "maximum"},
					),
					graph("Stranded usage", "", "Requests whose usage a proxy without an active session has not delivered, by proxy.",
						Query{highest("mgw_sessions_unsettled", "dataplane"), "{{dataplane}}"}),
				},
			},
			{
				"Settlement",
				[]Panel{
					graph(
						"Events",
						"reqps",
						"Usage events per second by outcome of settlement. A duplicate was settled before.",
						rates("mgw_settlement_events_total", "outcome"),
					),
					graph("Batch time", "s", "Duration of a settlement transaction.", quantiles("mgw_settlement_batch_seconds", 50, 99)...),
					graph(
						"Lag",
						"s",
						"Time from the end of the oldest request in the last settlement to its commit. It stands still when "+
							"settlement does.",
						Query{highest("mgw_settlement_lag_seconds", ""), "lag"},
					),
					graph(
						"Quarantine",
						"",
						"Usage events that could not be settled and wait for an operator.",
						Query{highest("mgw_quarantine_open_events", ""), "open"},
					),
				},
			},
			ledgerCheck(),
		},
	}
}

// ledgerCheck returns the row on the ledger check and on losses of commits.
func ledgerCheck() Row {
	return Row{
		"Ledger check",
		[]Panel{
			graph(
				"Result",
				"",
				"1 if the last ledger check of a scope found no difference, 0 if it did.",
				Query{"min by (scope) (mgw_ledger_check_ok)", "{{scope}}"},
			),
			graph("Differing rows", "", "Rows that violated an invariant in the last ledger check, by check.",
				Query{highest("mgw_ledger_check_differing_rows", "check"), "{{check}}"}),
			graph("Age and duration", "s", "Time since the last ledger check of a scope, and its duration.",
				Query{"time() - " + highest("mgw_ledger_check_timestamp_seconds", "scope"), "age {{scope}}"},
				Query{highest("mgw_ledger_check_duration_seconds", "scope"), "duration {{scope}}"}),
			graph("Cluster epoch", "", "Declared losses of Postgres commits, plus one. It rises when Postgres loses commits.",
				Query{highest("mgw_cluster_epoch", ""), "epoch"}),
			graph(
				"Declared losses",
				"",
				"Losses of Postgres commits that were declared within an hour.",
				Query{sum("increase(mgw_cluster_losses_total[1h])", ""), "losses"},
			),
			graph(
				"Recovery wait",
				"",
				"1 while nothing is granted after a declared loss.",
				Query{highest("mgw_recovering", ""), "recovering"},
			),
		},
	}
}
