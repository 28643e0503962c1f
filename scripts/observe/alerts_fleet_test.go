package observe

const changesFail = "Changes cannot be appended, were lost by the stream, or wait. A revocation is reported as effective only when proxies have confirmed it."

var fleetAlertTests = []alertTest{
	{"MgwProviderDown", "11m", []history{
		{`mgw_provider_attempts_total{provider="one",outcome="connection",pod="a"}`, "0+6x11", "0+3x11"},
		{`mgw_provider_attempts_total{provider="one",outcome="unavailable",pod="a"}`, "0+2x11", "0+2x11"},
		{`mgw_provider_attempts_total{provider="one",outcome="ok",pod="a"}`, "0+2x11", "0+5x11"},
		{`mgw_provider_attempts_total{provider="two",outcome="ok",pod="a"}`, "0+90x11", "0+9x11"},
	}, []firing{{"provider=one", "80% of the calls to one fail."}}},
	{"MgwProviderRefusesUs", "21m", []history{ // a single refusal wakes nobody
		{`mgw_provider_attempts_total{provider="one",outcome="gateway_refused",pod="a"}`, "0+2x21", "0+0x15 1+0x6"},
		{`mgw_provider_attempts_total{provider="one",outcome="ok",pod="a"}`, "0+8x21", "0+0x21"},
	}, []firing{{"provider=one", "one refuses 20% of the calls because of the gateway's key, balance, plan or access, not because of a client."}}},
	{"MgwProviderRefusedACall", "30m", []history{ // the only refusal creates the series, and the credential is not used again
		{`mgw_provider_attempts_total{provider="one",outcome="gateway_refused",pod="a"}`, "_x25 1+0x10", "1+0x35"},
		{`mgw_provider_attempts_total{provider="one",outcome="ok",pod="a"}`, "0+5x35", "0+5x35"},
	}, []firing{{"provider=one", "one refused calls because of the gateway's key, balance, plan or access, not because of a client."}}},
	{"MgwProviderRefusedACall", "30m", []history{
		{`mgw_provider_attempts_total{provider="one",outcome="gateway_refused",pod="a"}`, "1+0x25 2+0x10", "2+0x35"},
	}, []firing{{"provider=one", "one refused calls because of the gateway's key, balance, plan or access, not because of a client."}}},
	{"MgwCredentialRefused", "6m", []history{
		{`mgw_credential_refused{provider="one",credential="main",reason="key_rejected",pod="a"}`, "1+0x6", "1 1 1 stale"},
	}, []firing{{"provider=one,credential=main,reason=key_rejected", "one refuses the credential main: key_rejected."}}},
	{"MgwCredentialNotRenewed", "14m", []history{ // with the two that fail: a token that nobody needs, and one that is valid for long
		{`mgw_credential_expiry_timestamp_seconds{provider="one",credential="main",kind="oauth",pod="a"}`, "1200+0x14", "1200+0x14"},
		{`mgw_credential_expiry_timestamp_seconds{provider="two",credential="idle",kind="oauth",pod="a"}`, "600+0x14", "600+0x14"},
		{`mgw_credential_expiry_timestamp_seconds{provider="two",credential="long",kind="oauth",pod="a"}`, "9000+0x14", "9000+0x14"},
		{`mgw_credential_renewals_total{kind="oauth",result="failed",pod="a"}`, "0+1x14", "0+0x14"},
		{`mgw_credential_refused{provider="one",credential="main",reason="source_failing",pod="a"}`, "1+0x14", "1+0x14"},
		{`mgw_credential_refused{provider="two",credential="long",reason="source_failing",pod="a"}`, "1+0x14", "1+0x14"},
	}, []firing{{"provider=one,credential=main,kind=oauth", "Proxies cannot renew the credential main (oauth) of one. Without a valid token no call is made with it."}}},
	{"MgwCredentialNotRenewed", "14m", []history{ // after the end of the token; an operator has closed the other provider
		{`mgw_credential_expiry_timestamp_seconds{provider="one",credential="main",kind="aws",pod="a"}`, "60+0x14", "60+0x8 4000+0x6"},
		{`mgw_credential_expiry_timestamp_seconds{provider="two",credential="main",kind="aws",pod="a"}`, "60+0x14", "60+0x8 4000+0x6"},
		{`mgw_credential_renewals_total{kind="aws",result="failed",pod="a"}`, "0+1x14", "0+1x8 8+0x6"},
		{`mgw_credential_refused{provider="one",credential="main",reason="source_failed",pod="a"}`, "1+0x14", "1+0x8 stale"},
		{`mgw_credential_refused{provider="two",credential="main",reason="source_failed",pod="a"}`, "1+0x14", "1+0x8 stale"},
		{`mgw_maintenance_active{scope="provider",id="two",pod="a"}`, "1+0x14", "1+0x14"},
	}, []firing{{"provider=one,credential=main,kind=aws", "Proxies cannot renew the credential main (aws) of one. Without a valid token no call is made with it."}}},
	{"MgwProviderCertificateExpires", "70m", []history{
		{`mgw_provider_certificate_expiry_timestamp_seconds{provider="one",credential="crd_1",certificate="client",pod="a"}`, "868200+0x70", "9000000+0x70"},
		{`mgw_provider_certificate_expiry_timestamp_seconds{provider="two",credential="",certificate="issuer",pod="a"}`, "9000000+0x70", "9000000+0x70"},
	}, []firing{{"provider=one,credential=crd_1,certificate=client", "The client certificate for one expires in 10d 0h 0m 0s."}}},
	{"MgwProviderCertificateExpires", "70m", []history{
		{`mgw_provider_certificate_expiry_timestamp_seconds{provider="one",credential="crd_1",certificate="client",pod="a"}`, "868200+0x70", "868200+0x70"},
		{`mgw_provider_certificate_expiry_timestamp_seconds{provider="two",credential="",certificate="issuer",pod="a"}`, "868200+0x70", "9000000+0x70"},
		{`mgw_maintenance_active{scope="provider",id="one",pod="a"}`, "1+0x70", "1+0x70"},
	}, []firing{{"provider=two,certificate=issuer", "The issuer certificate for two expires in 10d 0h 0m 0s."}}},
	{"MgwProviderCertificateExpiresSoon", "20m", []history{
		{`mgw_provider_certificate_expiry_timestamp_seconds{provider="one",credential="crd_1",certificate="client",pod="a"}`, "174000+0x20", "868200+0x20"},
	}, []firing{{"provider=one,credential=crd_1,certificate=client", "The client certificate for one expires in 2d 0h 0m 0s."}}},
	{"MgwProviderCertificateExpiresSoon", "20m", []history{
		{`mgw_provider_certificate_expiry_timestamp_seconds{provider="one",credential="crd_1",certificate="client",pod="a"}`, "174000+0x20", "174000+0x20"},
		{`mgw_provider_certificate_expiry_timestamp_seconds{provider="two",credential="",certificate="issuer",pod="a"}`, "174000+0x20", "868200+0x20"},
		{`mgw_maintenance_active{scope="provider",id="one",pod="a"}`, "1+0x20", "1+0x20"},
	}, []firing{{"provider=two,certificate=issuer", "The issuer certificate for two expires in 2d 0h 0m 0s."}}},
	{"MgwRouteOpen", "21m", []history{ // it is half-open while it waits for the request that is its probe
		{`mgw_route_breaker_state{route="m/one",pod="a"}`, "2 1 2 2 1 2 2 2 1 2 2 2 2 2 1 2 1 2 1 2 2 2", "2 1 2 2 1 2 0 0 0 2 2 2 2 2 1 2 1 2 1 2 2 2"},
		{`mgw_route_breaker_state{route="m/one",pod="b"}`, "0+0x21", "1+0x21"},
	}, []firing{{"route=m/one", "The circuit breaker of m/one stays open."}}},
	{"MgwProviderLimits", "21m", []history{
		{`mgw_provider_attempts_total{provider="one",outcome="rate_limit",pod="a"}`, "0+3x21", "0+1x21"},
		{`mgw_provider_attempts_total{provider="one",outcome="ok",pod="a"}`, "0+7x21", "0+9x21"},
	}, []firing{{"provider=one", "one answers 30% of the calls with a rate limit."}}},
	{"MgwErrorsUnknown", "125m", []history{
		{`mgw_provider_attempts_total{provider="one",outcome="other_client",pod="a"}`, "0+1x125", "0+1x125"},
		{`mgw_provider_attempts_total{provider="one",outcome="ok",pod="a"}`, "0+9x125", "0+99x125"},
	}, []firing{{"provider=one", "10% of the answers of one are errors without a rule in the classifier."}}},

	// An operator has closed one provider: its alerts are silent, and those of the others are not.
	{"MgwProviderDown", "11m", []history{
		{`mgw_provider_attempts_total{provider="one",outcome="connection",pod="a"}`, "0+6x11", "0+6x11"},
		{`mgw_provider_attempts_total{provider="two",outcome="connection",pod="a"}`, "0+6x11", "0+0x11"},
		{`mgw_maintenance_active{scope="provider",id="one",pod="a"}`, "1+0x11", "1+0x11"},
		{`mgw_maintenance_active{scope="model",id="two",pod="a"}`, "1+0x11", "1+0x11"},
	}, []firing{{"provider=two", "100% of the calls to two fail."}}},
	{"MgwProviderRefusesUs", "21m", []history{
		{`mgw_provider_attempts_total{provider="one",outcome="gateway_refused",pod="a"}`, "0+2x21", "0+2x21"},
		{`mgw_provider_attempts_total{provider="two",outcome="gateway_refused",pod="a"}`, "0+2x21", "0+0x21"},
		{`mgw_maintenance_active{scope="provider",id="one",pod="a"}`, "1+0x21", "1+0x21"},
	}, []firing{{"provider=two", "two refuses 100% of the calls because of the gateway's key, balance, plan or access, not because of a client."}}},
	{"MgwProviderRefusedACall", "30m", []history{
		{`mgw_provider_attempts_total{provider="one",outcome="gateway_refused",pod="a"}`, "1+0x25 2+0x10", "1+0x25 2+0x10"},
		{`mgw_provider_attempts_total{provider="two",outcome="gateway_refused",pod="a"}`, "1+0x25 2+0x10", "2+0x35"},
		{`mgw_maintenance_active{scope="provider",id="one",pod="a"}`, "1+0x35", "1+0x35"},
	}, []firing{{"provider=two", "two refused calls because of the gateway's key, balance, plan or access, not because of a client."}}},
	{"MgwCredentialRefused", "6m", []history{
		{`mgw_credential_refused{provider="one",credential="main",reason="key_rejected",pod="a"}`, "1+0x6", "1+0x6"},
		{`mgw_credential_refused{provider="two",credential="main",reason="key_rejected",pod="a"}`, "1+0x6", "_x6"},
		{`mgw_maintenance_active{scope="provider",id="one",pod="a"}`, "1+0x6", "1+0x6"},
	}, []firing{{"provider=two,credential=main,reason=key_rejected", "two refuses the credential main: key_rejected."}}},
	{"MgwProviderLimits", "21m", []history{
		{`mgw_provider_attempts_total{provider="one",outcome="rate_limit",pod="a"}`, "0+3x21", "0+3x21"},
		{`mgw_provider_attempts_total{provider="two",outcome="rate_limit",pod="a"}`, "0+3x21", "0+0x21"},
		{`mgw_maintenance_active{scope="provider",id="one",pod="a"}`, "1+0x21", "1+0x21"},
	}, []firing{{"provider=two", "two answers 100% of the calls with a rate limit."}}},
	{"MgwErrorsUnknown", "125m", []history{
		{`mgw_provider_attempts_total{provider="one",outcome="other_client",pod="a"}`, "0+1x125", "0+1x125"},
		{`mgw_provider_attempts_total{provider="two",outcome="other_client",pod="a"}`, "0+1x125", "0+0x125"},
		{`mgw_maintenance_active{scope="provider",id="one",pod="a"}`, "1+0x125", "1+0x125"},
	}, []firing{{"provider=two", "100% of the answers of two are errors without a rule in the classifier."}}},

	// The failing route was closed, by its provider or its model, before the alert was due.
	{"MgwRouteOpen", "12m", []history{
		{`mgw_route_breaker_state{route="m/one",pod="a"}`, "2+0x6 1+0x15", "2+0x6 1+0x15"},
		{`mgw_route_breaker_state{route="m/two",pod="a"}`, "2 1 2 2 1 2 2 2 1 2 2 2 2 2 1 2 1 2 1 2 2 2", "0+0x21"},
		{`mgw_maintenance_active{scope="route",id="m/one",pod="a"}`, "_x6 1+0x15", "_x6 1+0x15"},
		{`mgw_maintenance_active{scope="provider",id="m/two",pod="a"}`, "1+0x21", "1+0x21"},
	}, []firing{{"route=m/two", "The circuit breaker of m/two stays open."}}},

	{"MgwNotReady", "6m", []history{
		{`mgw_ready{job="dataplane",instance="a"}`, "0+0x6", "0+0x6"},
		{`mgw_draining{job="dataplane",instance="a"}`, "0+0x6", "1+0x6"},
		{`mgw_ready{job="controlplane",instance="b"}`, "1+0x6", "0 0 1 1 1 0 0"},
	}, []firing{{"job=dataplane,instance=a", "a of dataplane gets no requests."}}},
	{"MgwNATSDisconnected", "3m", []history{
		{`mgw_nats_connected{job="controlplane",instance="a"}`, "0+0x3", "1+0x3"},
		{`mgw_nats_connected{job="dataplane",instance="b"}`, "1+0x3", "1 0 1 0"},
	}, []firing{{"job=controlplane,instance=a", "a of controlplane has no connection to NATS."}}},
	{"MgwJobFails", "140m", []history{ // another replica succeeds, and jobs run at least once an hour
		{`mgw_job_last_success_timestamp_seconds{name="archive",instance="a"}`, "0+0x140", "0+0x140"},
		{`mgw_job_last_success_timestamp_seconds{name="archive",instance="b"}`, "60+0x140", "3600+0x140"},
	}, []firing{{"name=archive", "archive last succeeded 2h 19m 0s ago."}}},
	{"MgwPostgresPoolFull", "11m", []history{
		{`mgw_postgres_pool_wait_seconds_total{pool="admin",instance="a"}`, "0+120x11", "0+20x11"},
	}, []firing{{"pool=admin,instance=a", "Operations of the pool admin on a wait 2s in each second, all together."}}},
	{"MgwOutboxOld", "3m", []history{
		{`mgw_outbox_oldest_age_seconds{pod="a"}`, "31+60x3", "0 40 0 0"},
	}, one("The oldest catalog change has waited for 3m 31s.")},
	{"MgwCatalogBehind", "3m", []history{
		{`mgw_catalog_revision{job="gateway-dataplane",pod="a"}`, "7+0x3", "7 8 8 8"},
		{`mgw_catalog_revision{job="gateway-dataplane",pod="b"}`, "6+0x3", "7 7 8 8"},
		{`mgw_catalog_revision{job="other-dataplane",pod="c"}`, "90+0x3", "90+0x3"},
	}, []firing{{"job=gateway-dataplane", "Proxies use different revisions of the catalog, so that prices and routes differ between them."}}},
	{"MgwRevocationSlow", "16m", []history{
		{`mgw_revocation_lag_seconds_bucket{le="5",pod="a"}`, "0+0x16", "0+1x16"},
		{`mgw_revocation_lag_seconds_bucket{le="30",pod="a"}`, "0+1x16", "0+1x16"},
		{`mgw_revocation_lag_seconds_bucket{le="+Inf",pod="a"}`, "0+1x16", "0+1x16"},
	}, one("The 99th percentile of the time until a key change is confirmed is 29.75s.")},
	{"MgwLeaseQueueFull", "11m", []history{
		{`mgw_lease_queue_refused_total{pod="a"}`, "0+60x11", "60+0x11"},
	}, one("1 messages of proxies a second find the queue full.")},
	{"MgwLeaseBatchSlow", "11m", []history{
		{`mgw_lease_batch_seconds_bucket{le="0.128",pod="a"}`, "0+0x11", "0+100x11"},
		{`mgw_lease_batch_seconds_bucket{le="0.5",pod="a"}`, "0+100x11", "0+100x11"},
		{`mgw_lease_batch_seconds_bucket{le="+Inf",pod="a"}`, "0+100x11", "0+100x11"},
	}, one("The 99th percentile of a lease transaction is 496.3ms. Requests that need one wait.")},
	{"MgwSessionsFlap", "16m", []history{
		{`up{job="gateway-dataplane",pod="a"}`, "1+0x16", "1+0x16"},
		{`mgw_sessions_total{pod="a"}`, "1+1x16", "1+0x16"},
		{`mgw_change_gaps_total{pod="a"}`, "0+0x16", "0+0x16"},
	}, one("15 registrations, or gaps between pushed key changes, within 15 minutes.")},
	{"MgwSessionsFlap", "16m", []history{
		{`up{job="gateway-dataplane",pod="a"}`, "1+0x16", "1+0x16"},
		{`mgw_change_gaps_total{pod="a"}`, "0+2x16", "5+0x16"},
	}, one("30 registrations, or gaps between pushed key changes, within 15 minutes.")},
	{"MgwFreshLapses", "20m", []history{ // a single lapse is a rollout of NATS
		{`mgw_fresh_lapses_total{instance="a"}`, "0+1x20", "0 0 0 0 0 0 0 0 1+0x12"},
	}, []firing{
		{"instance=a", "a does not read its beats in the stream of changes in time. Meanwhile it answers 503."},
	}},
	{"MgwChangesFail", "25m", []history{
		{`mgw_changes_append_failures_total{pod="a"}`, "0+1x25", "0+0x10 2+0x15"},
		{`mgw_changes_waiting{pod="a"}`, "5+0x25", "2000 2000 2000 5+0x22"},
	}, one(changesFail)},
	{"MgwChangesFail", "25m", []history{ // one replica appends, the other waits for nothing: all see what waits
		{`mgw_changes_waiting{pod="a"}`, "2000+0x25", "2000+0x25"},
		{`mgw_changes_waiting{pod="b"}`, "1500+0x25", "0 1 2 3 4 0 1 2 3 4 0 1 2 3 4 0 1 2 3 4 0 1 2 3 4 0"},
	}, one(changesFail)},
	{"MgwKeyBucketBehind", "11m", []history{ // it suffices that one replica writes
		{`mgw_key_bucket_behind_seconds{pod="a"}`, "0+60x11", "0+60x11"},
		{`mgw_key_bucket_behind_seconds{pod="b"}`, "301+60x11", "0+0x11"},
	}, one("No control plane has found every change in the bucket for 11m 0s. In an outage, proxies refuse keys that they have not cached.")},
	{"MgwLeftStreamsEstimated", "80m", []history{
		{`mgw_left_streams_total{rule="estimated",pod="a"}`, "0+3x80", "0+1x80"},
		{`mgw_left_streams_total{rule="reported",pod="a"}`, "0+1x80", "0+3x80"},
	}, one("75% of the streams whose client left ended without a report of their usage.")},
	{"MgwBodiesRefused", "16m", []history{
		{`mgw_body_refusals_total{reason="full",pod="a"}`, "0+2x16", "0+0x16"},
		{`mgw_body_refusals_total{reason="share",pod="a"}`, "0+9x16", "0+90x16"},
		{`mgw_requests_total{status="200",code="",pod="a"}`, "0+100x16", "0+100x16"},
	}, one("2% of the requests or answers find no room in the memory for bodies.")},
	{"MgwUsageStreamFull", "16m", []history{
		{`mgw_usage_stream_bytes{pod="a"}`, "80+0x16", "80+0x16"},
		{`mgw_usage_stream_max_bytes{pod="a"}`, "100+0x16", "0+0x16"},
	}, one("The usage stream has 80% of its maximum size. When it is full, usage waits in the spools.")},
	{"MgwWebhookDisabled", "3m", []history{
		{`mgw_webhook_endpoints{state="failed",pod="a"}`, "2+0x3", "0+0x3"},
		{`mgw_webhook_endpoints{state="disabled",pod="a"}`, "0+0x3", "5+0x3"},
	}, one("2 endpoints get no events, because every delivery failed for days.")},
	{"MgwCertificateExpires", "70m", []history{
		{`mgw_certificate_expiry_timestamp_seconds{job="dataplane",certificate="api",pod="a"}`, "90600+0x70", "1000000+0x70"},
		{`mgw_certificate_expiry_timestamp_seconds{job="dataplane",certificate="api",pod="b"}`, "1000000+0x70", "1000000+0x70"},
		{`mgw_certificate_expiry_timestamp_seconds{job="controlplane",certificate="admin",pod="c"}`, "1000000+0x70", "1000000+0x70"},
	}, []firing{{"job=dataplane,certificate=api", "The certificate api of dataplane expires in 1d 0h 0m 0s."}}},
}
