package observe

// An alertTest holds two histories of series, one in which an alert fires and one in which it does not.
type alertTest struct {
	alert string
	// at is the time in the histories at which the alert fires, or does not.
	at string
	// series are the series with their values in both histories, one a minute, in the notation of promtool.
	series []history
	// want are the alerts that fire in the first history.
	want []firing
}

type history struct{ name, firing, quiet string }

type firing struct {
	// labels are those besides the labels that the rule sets, as name=value, separated by commas.
	labels      string
	description string
}

// one is the expectation of one alert without labels.
func one(description string) []firing { return []firing{{"", description}} }

func noPlane(name string) string {
	return "No " + name + " can be scraped. Without proxies no request is served. Without a control plane proxies refuse requests as soon as their sessions end."
}

const unavailable = "Requests are answered 503 service_unavailable without maintenance, or no proxy has a session."

var alertTests = []alertTest{
	{"MgwLedgerDiffers", "1m", []history{
		{`mgw_ledger_check_ok{scope="recent",pod="a"}`, "1 0", "1 1"},
		{`mgw_ledger_check_ok{scope="changed",pod="a"}`, "1 1", "1 1"},
	}, []firing{{"scope=recent", "The check of the scope recent fails. Charges or balances may be wrong."}}},
	{"MgwLedgerCheckSilent", "11m", []history{ // the values are Unix times of a history that begins at 0
		{`mgw_ledger_check_timestamp_seconds{scope="changed",pod="a"}`, "0+0x11", "0+60x11"},
	}, []firing{{"scope=changed", "The last check of the scope changed is too old, so that nothing would show a wrong charge."}}},
	{"MgwLedgerCheckSilent", "130m", []history{ // the replicas were replaced, and none has finished the check of an hour
		{`mgw_ledger_check_timestamp_seconds{scope="changed",pod="b"}`, "0+60x130", "0+60x130"},
		{`mgw_ledger_check_timestamp_seconds{scope="recent",pod="a"}`, "60+0x20 stale", "4200+0x20 stale"},
	}, []firing{{"scope=recent", "The last check of the scope recent is too old, so that nothing would show a wrong charge."}}},
	{"MgwLedgerCheckSilent", "16m", []history{ // the check has failed since the start
		{`mgw_ledger_check_timestamp_seconds{scope="changed",pod="a"}`, "_x20", "0+60x20"},
		{`up{job="gateway-controlplane"}`, "1+0x20", "1+0x20"},
	}, []firing{{"scope=changed", "The last check of the scope changed is too old, so that nothing would show a wrong charge."}}},
	{"MgwSettlementStands", "6m", []history{
		{`mgw_usage_oldest_unsettled_seconds{pod="a"}`, "301+60x6", "30+0x6"},
		{`mgw_usage_oldest_unsettled_seconds{pod="b"}`, "0+0x6", "299+0x6"},
	}, one("The oldest usage event has waited for 11m 1s. Balances do not fall, and spools fill.")},
	{"MgwUsagePublishFails", "12m", []history{
		{`mgw_usage_publish_failures_total{pod="a"}`, "0+1x12", "0+1x12"},
		{`mgw_usage_published_total{pod="a"}`, "9+0x12", "9+0x12"},
		{`mgw_usage_published_total{pod="b"}`, "9+0x12", "9+5x12"},
	}, one("The usage stream acknowledges nothing. Usage waits in the spools of the proxies.")},
	{"MgwCommitsLost", "30m", []history{ // the process that declared the loss is new
		{`mgw_cluster_epoch{job="gateway-controlplane",pod="a"}`, "1+0x20 stale", "1+0x20 stale"},
		{`mgw_cluster_epoch{job="gateway-controlplane",pod="b"}`, "_x25 2+0x10", "_x25 1+0x10"},
		{`mgw_cluster_epoch{job="other-controlplane",pod="c"}`, "4+0x40", "4+0x40"},
	}, []firing{{"job=gateway-controlplane", "The control plane has declared a loss. The cluster epoch is now 2."}}},
	{"MgwSettlementLag", "20m", []history{
		{`mgw_settlement_lag_seconds{pod="a"}`, "90+0x20", "90+0x20"},
		{`mgw_settlement_events_total{outcome="settled",pod="a"}`, "0+10x20", "500+0x20"},
	}, one("Usage is settled 1m 30s after the end of its request.")},
	{"MgwQuarantine", "16m", []history{
		{`mgw_quarantine_open_events{pod="a"}`, "3+0x16", "0+0x16"},
	}, one("3 events could not be settled and are not charged until an operator decides.")},
	{"MgwUsageStranded", "16m", []history{
		{`mgw_sessions_unsettled{dataplane="proxy-2",pod="a"}`, "7+0x16", "7+0x10 0+0x6"},
		{`mgw_sessions_unsettled{dataplane="proxy-2",pod="b"}`, "7+0x16", "7+0x10 0+0x6"},
	}, []firing{{"dataplane=proxy-2", "proxy-2 has 7 requests in its spool, and no active session."}}},
	{"MgwUsageUnpriced", "70m", []history{ // the first increment creates the series
		{`mgw_unpriced_usage_total{kind="server_tool",pod="a"}`, "_x60 1+0x20", "1+0x80"},
	}, []firing{{"kind=server_tool", "1 answers within an hour had usage of the kind server_tool, which no client is charged for."}}},

	{"MgwUsageEstimated", "80m", []history{
		{`mgw_usage_doubts_total{provider="one",reason="missing",pod="a"}`, "0+1x80", "0+1x80"},
		{`mgw_usage_doubts_total{provider="one",reason="low_output",pod="a"}`, "0+1x80", "0+0x80"},
		{`mgw_usage_doubts_total{provider="one",reason="interrupted",pod="a"}`, "0+9x80", "0+9x80"},
		{`mgw_provider_attempts_total{provider="one",outcome="ok",pod="a"}`, "0+100x80", "0+100x80"},
	}, []firing{{"provider=one", "2% of the answers of one are charged by an estimate."}}},
	{"MgwUsageEstimated", "80m", []history{ // an operator has closed one provider, and only its alerts are silent
		{`mgw_usage_doubts_total{provider="one",reason="missing",pod="a"}`, "0+2x80", "0+2x80"},
		{`mgw_provider_attempts_total{provider="one",outcome="ok",pod="a"}`, "0+100x80", "0+100x80"},
		{`mgw_usage_doubts_total{provider="two",reason="missing",pod="a"}`, "0+2x80", "0+0x80"},
		{`mgw_provider_attempts_total{provider="two",outcome="ok",pod="a"}`, "0+100x80", "0+100x80"},
		{`mgw_maintenance_active{scope="provider",id="one",pod="a"}`, "1+0x80", "1+0x80"},
	}, []firing{{"provider=two", "2% of the answers of two are charged by an estimate."}}},
	{"MgwNegativeBalances", "125m", []history{
		{`mgw_negative_balance{instance="a"}`, "30+0x125", "10+0x125"},
		{`mgw_charged_total{model="m",instance="b"}`, "0+10x125", "0+10x125"},
	}, one("Accounts with negative balances owe 30 currency units, more than 1 % of the charges of a day.")},
	{"MgwRouteLosesMoney", "80m", []history{ // a route may earn little, and a few calls are no reason to look
		{`mgw_route_charged_total{route="dear",pod="a"}`, "0+3x80", "0+4x80"},
		{`mgw_route_provider_cost_total{route="dear",pod="a"}`, "0+4x80", "0+4x80"},
		{`mgw_route_calls_total{route="dear",pod="a"}`, "0+1x80", "0+1x80"},
		{`mgw_route_charged_total{route="rare",pod="a"}`, "0+0x80", "0+0x80"},
		{`mgw_route_provider_cost_total{route="rare",pod="a"}`, "0+4x80", "0+4x80"},
		{`mgw_route_calls_total{route="rare",pod="a"}`, "3+0x80", "3+0x80"},
		{`mgw_route_charged_total{route="free",pod="a"}`, "0+0x80", "0+0x80"},
		{`mgw_route_provider_cost_total{route="free",pod="a"}`, "0+0x80", "0+0x80"},
		{`mgw_route_calls_total{route="free",pod="a"}`, "0+9x80", "0+9x80"},
	}, []firing{{"route=dear", "25% of what the calls of dear cost within an hour is not covered by charges."}}},
	{"MgwProviderBillDiffers", "16m", []history{
		{`mgw_provider_bills_overdue{pod="a"}`, "2+0x16", "0+0x16"},
	}, one("2 bills have more than 0.1 % that nothing explains, for more than 48 hours after their import.")},
	{"MgwSpoolFills", "6m", []history{
		{`mgw_spool_used_capacity{instance="a"}`, "71+0x6", "69+0x6"},
		{`mgw_spool_capacity{instance="a"}`, "100+0x6", "100+0x6"},
		{`mgw_spool_bytes{instance="b"}`, "71+0x6", "69+0x6"},
		{`mgw_spool_max_bytes{instance="b"}`, "100+0x6", "100+0x6"},
		{`mgw_spool_disk_free_bytes{instance="b"}`, "90+0x6", "11+0x6"},
	}, []firing{
		{"instance=a", "The spool or disk of a runs out. From 90 % on the proxy refuses requests."},
		{"instance=b", "The spool or disk of b runs out. From 90 % on the proxy refuses requests."},
	}},

	{"MgwServerErrors", "11m", []history{
		{`mgw_requests_total{status="200",code="",pod="a"}`, "0+90x11", "0+96x11"},
		{`mgw_requests_total{status="502",code="upstream_unavailable",pod="a"}`, "0+10x11", "0+4x11"},
	}, one("10% of the requests of the last 5 minutes ended with a 5xx status.")},
	{"MgwServerErrors", "11m", []history{ // maintenance answers 503, and one error is no reason to wake anybody
		{`mgw_requests_total{status="503",code="service_unavailable",outcome="maintenance",pod="a"}`, "0+50x11", "0+98x11"},
		{`mgw_requests_total{status="503",code="",outcome="maintenance",pod="a"}`, "0+50x11", "0+98x11"},
		{`mgw_requests_total{status="200",code="",outcome="completed",pod="a"}`, "0+50x11", "0+98x11"},
		{`mgw_requests_total{status="500",code="",outcome="failed",pod="a"}`, "0+50x11", "0+0x5 1+0x6"},
	}, one("50% of the requests of the last 5 minutes ended with a 5xx status.")},
	{"MgwServerErrorsSlow", "70m", []history{
		{`mgw_requests_total{status="200",code="",pod="a"}`, "0+97x70", "0+99x70"},
		{`mgw_requests_total{status="500",code="",pod="a"}`, "0+3x70", "0+1x70"},
	}, one("3% of the requests of the last hour ended with a 5xx status.")},
	// Everything is refused while one model has been closed for weeks; or that model, and few others.
	{"MgwServiceUnavailable", "11m", []history{
		{`mgw_requests_total{status="503",code="service_unavailable",outcome="failed",pod="a"}`, "0+600x11", "0+3x11"},
		{`mgw_requests_total{status="503",code="service_unavailable",outcome="maintenance",pod="a"}`, "0+60x11", "0+600x11"},
		{`mgw_requests_total{status="200",code="",outcome="completed",pod="a"}`, "0+0x11", "0+6000x11"},
		{`mgw_maintenance_active{scope="model",id="demo-old",pod="a"}`, "1+0x11", "1+0x11"},
		{`mgw_session_remaining_seconds{pod="a"}`, "29+0x11", "29+0x11"},
	}, one(unavailable)},
	{"MgwServiceUnavailable", "11m", []history{ // two single refusals beside 60,000 good requests a minute
		{`mgw_requests_total{status="503",code="service_unavailable",outcome="failed",pod="a"}`, "0+6000x11", "0 0 0 0 0 1 1 1 1 2 2 2"},
		{`mgw_requests_total{status="200",code="",outcome="completed",pod="a"}`, "0+60000x11", "0+60000x11"},
	}, one(unavailable)},
	{"MgwServiceUnavailable", "11m", []history{ // a few requests a minute: a share without a count
		{`mgw_requests_total{status="503",code="service_unavailable",outcome="failed",pod="a"}`, "0+6x11", "0 0 0 0 0 1 1 1 1 2 2 2"},
		{`mgw_requests_total{status="200",code="",outcome="completed",pod="a"}`, "0+0x11", "0 1 1 1 1 1 1 1 1 1 1 1"},
	}, one(unavailable)},
	{"MgwServiceUnavailable", "11m", []history{ // the whole system is closed, and one of two proxies registers again
		{`mgw_requests_total{status="503",code="service_unavailable",outcome="maintenance",pod="a"}`, "0+60x11", "0+60x11"},
		{`mgw_maintenance_active{scope="system",id="",pod="a"}`, "1+0x11", "1+0x11"},
		{`mgw_session_remaining_seconds{pod="a"}`, "0+0x11", "0+0x11"},
		{`mgw_session_remaining_seconds{pod="b"}`, "0+0x11", "29+0x11"},
	}, one(unavailable)},
	{"MgwPlaneAbsent", "3m", []history{
		{`up{job="gateway-dataplane",pod="a"}`, "0+0x3", "0+0x3"},
		{`up{job="gateway-dataplane",pod="b"}`, "0+0x3", "1+0x3"},
		{`up{job="gateway-controlplane",pod="c"}`, "1+0x3", "1+0x3"},
	}, []firing{{"plane=data plane", noPlane("data plane")}}},
	{"MgwPlaneAbsent", "3m", []history{
		{`up{job="gateway-dataplane",pod="a"}`, "1+0x3", "1+0x3"},
		{`up{job="gateway-controlplane",pod="c"}`, "stale", "1+0x3"},
	}, []firing{{"plane=control plane", noPlane("control plane")}}},
	{"MgwStreamsBreak", "31m", []history{
		{`mgw_stream_ends_total{reason="completed",pod="a"}`, "0+95x31", "0+90x31"},
		{`mgw_stream_ends_total{reason="client_gone",pod="a"}`, "0+0x31", "0+9x31"},
		{`mgw_stream_ends_total{reason="truncated",pod="a"}`, "0+5x31", "0+1x31"},
	}, one("5% of the streams ended before they were complete.")},
	{"MgwOwnTime", "21m", []history{
		{`mgw_request_overhead_seconds_bucket{le="0.025",pod="a"}`, "0+90x21", "0+100x21"},
		{`mgw_request_overhead_seconds_bucket{le="0.05",pod="a"}`, "0+100x21", "0+100x21"},
		{`mgw_request_overhead_seconds_bucket{le="+Inf",pod="a"}`, "0+100x21", "0+100x21"},
	}, one("The 99th percentile of the proxy's own time is 47.5ms.")},
	{"MgwFirstToken", "21m", []history{
		{`mgw_time_to_first_token_seconds_bucket{le="10",pod="a"}`, "0+90x21", "0+96x21"},
		{`mgw_time_to_first_token_seconds_bucket{le="30",pod="a"}`, "0+100x21", "0+100x21"},
		{`mgw_time_to_first_token_seconds_bucket{le="+Inf",pod="a"}`, "0+100x21", "0+100x21"},
	}, one("The 95th percentile of the time to the first token is 20s.")},
	{"MgwAdminErrors", "21m", []history{
		{`mgw_admin_requests_total{status="200",pod="a"}`, "0+19x21", "0+99x21"},
		{`mgw_admin_requests_total{status="503",pod="a"}`, "0+1x21", "0+1x21"},
	}, one("5% of the admin requests ended with a 5xx status.")},
	{"MgwVideoStuck", "16m", []history{
		{`mgw_video_jobs{state="stuck",pod="a"}`, "1+0x16", "0+0x16"},
		{`mgw_video_jobs{state="running",pod="a"}`, "9+0x16", "9+0x16"},
		{`mgw_video_jobs_oldest_open_seconds{pod="a"}`, "7201+0x16", "7199+0x16"},
	}, []firing{
		{"state=stuck", "Jobs are in the state stuck."},
		{"", "Jobs are in the state open for more than two hours."},
	}},
	{"MgwWebhooksLate", "6m", []history{
		{`mgw_webhook_oldest_pending_age_seconds{pod="a"}`, "1200+0x6", "899+0x6"},
	}, one("The oldest pending delivery has waited for 20m 0s.")},
}
