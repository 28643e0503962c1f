package observe

func fleet() Dashboard {
	return Dashboard{
		"mgw-fleet",
		"Leases and fleet",
		"Shows how proxies get money and slots, and whether they know the present keys and catalog.",
		[]Row{
			{
				"Leases",
				[]Panel{
					graph(
						"Admissions",
						"reqps",
						"Requests per second that asked for a reservation: local from idle units, synchronous by a lease request.",
						rates("mgw_lease_admissions_total", "mode"),
					),
					graph("Recalls", "reqps", "Recalls of idle units per second, sent by control planes and received by proxies.",
						Query{rate("mgw_lease_recalls_sent_total", ""), "sent"}, Query{rate("mgw_lease_recalls_total", ""), "received"}),
					graph("Turned away", "reqps", "Lease requests, returns and key lookups per second that found the queue full, or were "+
						"too large.",
						Query{rate("mgw_lease_queue_refused_total", ""), "refused"},
						Query{rate("mgw_lease_messages_too_large_total", ""), "too large"}),
					graph("Batch size", "", "Lease requests and returns in one transaction.", quantiles("mgw_lease_batch_size", 50, 99)...),
					graph(
						"Batch time",
						"s",
						"Duration of one transaction of lease requests and returns.",
						quantiles("mgw_lease_batch_seconds", 50, 99)...),
					graph("Key lookups", "", "Key records read by one statement.", quantiles("mgw_key_lookup_batch_size", 50, 99)...),
					graph("Stale key lookups", "reqps", "Key lookups per second that were dropped because their proxies no longer waited.",
						Query{rate("mgw_key_lookups_stale_total", ""), "dropped"}),
				},
			},
			{
				"Sessions and keys",
				[]Panel{
					graph(
						"Session",
						"s",
						"Time for which the session of a proxy is still valid without a further heartbeat. At 0 it admits nothing.",
						Query{aggregate("min", "mgw_session_remaining_seconds", "instance"), "{{instance}}"},
					),
					graph(
						"Sessions by state",
						"",
						"Sessions of proxies by state: active, expired, fenced, or closed with usage that has not arrived.",
						Query{highest("mgw_proxy_sessions", "state"), "{{state}}"},
					),
					graph(
						"Key cache",
						"reqps",
						"Lookups of keys per second by result: hit, refused, or miss, which the control plane is asked for.",
						rates("mgw_key_cache_requests_total", "result"),
					),
					graph("Registrations", "", "Sessions that proxies registered within 15 minutes. A restart of a proxy is one.",
						Query{sum("increase(mgw_sessions_total[15m])", "instance"), "{{instance}}"}),
					graph(
						"Gaps",
						"",
						"Pushed key changes that arrived before an earlier one, within 15 minutes.",
						Query{sum("increase(mgw_change_gaps_total[15m])", ""), "gaps"},
					),
					graph(
						"Revocation lag",
						"s",
						"Time until every proxy had confirmed a key change.",
						quantiles("mgw_revocation_lag_seconds", 50, 99)...),
				},
			},
			freshness(),
			{
				"Catalog",
				[]Panel{
					graph(
						"Revision",
						"",
						"Revision of the catalog that each proxy uses.",
						Query{highest("mgw_catalog_revision", "instance"), "{{instance}}"},
					),
					graph(
						"Age",
						"s",
						"Time since each proxy applied its catalog.",
						Query{highest("mgw_catalog_age_seconds", "instance"), "{{instance}}"},
					),
					graph(
						"Outbox age",
						"s",
						"Age of the oldest unpublished catalog entry.",
						Query{highest("mgw_outbox_oldest_age_seconds", ""), "age"},
					),
					graph(
						"Outbox",
						"",
						"Catalog entries that were published within 5 minutes, failed attempts, and restorations of the whole bucket.",
						Query{
							sum("increase(mgw_outbox_published_total[5m])", ""),
							"published",
						},
						Query{sum("increase(mgw_outbox_failures_total[5m])", ""), "failed"},
						Query{sum("increase(mgw_outbox_republished_total[5m])", ""), "restored"},
					),
				},
			},
		},
	}
}

func jobs() Dashboard {
	return Dashboard{
		"mgw-jobs",
		"Video, webhooks, admin API",
		"Shows the work that goes on after an answer, and the calls of operators and of the cabinet.",
		[]Row{
			{
				"Video jobs",
				[]Panel{
					graph(
						"Open jobs",
						"",
						"Open video jobs by state, and those given up within the last day.",
						Query{highest("mgw_video_jobs", "state"), "{{state}}"},
					),
					graph(
						"Oldest open job",
						"s",
						"Age of the oldest open video job.",
						Query{highest("mgw_video_jobs_oldest_open_seconds", ""), "age"},
					),
				},
			},
			{
				"Webhooks",
				[]Panel{
					graph("Attempts", "reqps", "Delivery attempts per second by outcome.", rates("mgw_webhook_attempts_total", "outcome")),
					graph("Attempt time", "s", "Duration of a delivery attempt.", quantiles("mgw_webhook_attempt_seconds", 50, 99)...),
					graph(
						"Pending deliveries",
						"",
						"Pending deliveries of enabled endpoints.",
						Query{highest("mgw_webhook_queued", ""), "pending"},
					),
					graph("Oldest pending delivery", "s", "Age of the oldest pending delivery of an enabled endpoint.",
						Query{highest("mgw_webhook_oldest_pending_age_seconds", ""), "age"}),
					graph(
						"Endpoints",
						"",
						"Webhook endpoints by state: enabled, disabled by an operator, or failed, which the control plane has disabled.",
						Query{highest("mgw_webhook_endpoints", "state"), "{{state}}"},
					),
				},
			},
			{"Admin API", []Panel{
				graph("Requests", "reqps", "Admin requests per second by status.", rates("mgw_admin_requests_total", "status")),
				graph("Duration", "s", "Duration of an admin request.", quantiles("mgw_admin_request_seconds", 50, 95, 99)...),
				graph("Slow routes", "s", "95th percentile of the duration of admin requests, the ten slowest routes.",
					Query{"topk(10, " + quantilesBy("mgw_admin_request_seconds", 95, "method, route").Expr + ")", "{{method}} {{route}}"}),
			}},
		},
	}
}

func runtime() Dashboard {
	const ours = `{job=~".*(controlplane|dataplane)"}`
	each := func(expr string) Query { return Query{expr, "{{job}} {{instance}}"} }
	return Dashboard{
		"mgw-runtime",
		"Runtime",
		"Shows the processes of both planes: versions, processors, memory, garbage collection.",
		[]Row{
			{"Processes", []Panel{
				table("Versions", "", "Version of each process.", Query{"mgw_build_info", ""}),
				graph("Up", "", "1 if Prometheus reaches a process.", each("up"+ours)),
				graph("Uptime", "s", "Time since a process started.", each("time() - process_start_time_seconds"+ours)),
				graph("CPU", "", "Processors that a process uses.", each("rate(process_cpu_seconds_total"+ours+"["+interval+"])")),
				graph("Open files", "", "Open files and connections of a process.", each("process_open_fds"+ours)),
				graph("Open files against the limit", "percentunit", "Share of the limit of open files that a process uses.",
					each("process_open_fds"+ours+" / process_max_fds"+ours)),
			}},
			{
				"Connections and jobs",
				[]Panel{
					graph(
						"Ready and draining",
						"",
						"1 for each process that is ready, and for each proxy that was told to stop.",
						Query{
							aggregate("min", "mgw_ready", "job, instance"),
							"ready {{job}} {{instance}}",
						},
						Query{highest("mgw_draining", "instance"), "draining {{instance}}"},
					),
					graph("NATS", "", "1 while a process is connected to NATS, and connections that were made again within 15 minutes.",
						Query{aggregate("min", "mgw_nats_connected", "job, instance"), "connected {{job}} {{instance}}"},
						Query{sum("increase(mgw_nats_reconnects_total[15m])", "job, instance"), "again {{job}} {{instance}}"}),
					graph("Connections to Postgres", "percentunit", "Share of the connections of a pool that is in use.",
						Query{"mgw_postgres_pool_in_use / mgw_postgres_pool_max", "{{pool}} {{instance}}"}),
					graph("Waits for Postgres", "s", "Time in each second that operations wait for a connection, all together, by pool.",
						Query{rate("mgw_postgres_pool_wait_seconds_total", "pool, instance"), "{{pool}} {{instance}}"}),
					graph("Background jobs", "s", "Time since the last success of each background job.",
						Query{"time() - " + highest("mgw_job_last_success_timestamp_seconds", "name"), "{{name}}"}),
				},
			},
			{
				"Memory",
				[]Panel{
					graph("Resident memory", "bytes", "Resident memory of a process.", each("process_resident_memory_bytes"+ours)),
					graph("Heap", "bytes", "Bytes of the heap in use.", each("go_memstats_heap_inuse_bytes"+ours)),
					graph(
						"Heap against GOMEMLIMIT",
						"percentunit",
						"Share of GOMEMLIMIT that the heap uses. Without a limit it is nearly 0.",
						each("go_memstats_heap_inuse_bytes"+ours+" / go_gc_gomemlimit_bytes"+ours),
					),
					graph("Goroutines", "", "Goroutines of a process.", each("go_goroutines"+ours)),
					graph(
						"Garbage collections",
						"",
						"Garbage collections per second.",
						each("rate(go_gc_duration_seconds_count"+ours+"["+interval+"])"),
					),
					graph(
						"Longest pause",
						"s",
						"Longest recent pause by the garbage collector.",
						each(`go_gc_duration_seconds{job=~".*(controlplane|dataplane)",quantile="1"}`),
					),
				},
			},
		},
	}
}

// freshness are the panels of the stream of changes and the bucket of key records, by which proxies serve on without control planes.
func freshness() Row {
	within := func(metric, by string) string { return sum("increase("+metric+"[15m])", by) }
	return Row{"Stream of changes and key bucket", []Panel{
		graph("Lapses", "", "How often within 15 minutes a proxy was no longer certain, and answered 503.",
			Query{within("mgw_fresh_lapses_total", "instance"), "{{instance}}"}),
		graph("Beats in the stream", "reqps", "Beats of proxies in the stream of changes per second by result.",
			rates("mgw_fresh_beats_total", "result")),
		graph("Changes", "", "Changes within 15 minutes: appended, revocations of operators, first heard by the stream, lost by it, and "+
			"failures to append.",
			Query{within("mgw_changes_appended_total", ""), "appended"},
			Query{within("mgw_changes_direct_total", ""), "revocations of operators"},
			Query{within("mgw_fresh_changes_total", ""), "first heard by the stream"},
			Query{within("mgw_changes_lost_total", ""), "lost"},
			Query{within("mgw_changes_append_failures_total", ""), "failed"}),
		graph("Changes waiting", "", "Committed changes that the stream of changes does not have, or not for the whole window.",
			Query{highest("mgw_changes_waiting", ""), "waiting"}),
		graph("Key bucket behind", "s", "Time since each control plane last found every change in the bucket of key records.",
			Query{highest("mgw_key_bucket_behind_seconds", "instance"), "{{instance}}"}),
		graph("Key bucket writes", "", "Records within 15 minutes that were written to the bucket, failures, and keys that are left "+
			"while all are written.",
			Query{within("mgw_key_bucket_records_written_total", ""), "written"},
			Query{within("mgw_key_bucket_failures_total", ""), "failed"},
			Query{highest("mgw_key_bucket_keys_left", ""), "left"}),
		graph("Key bucket reads", "reqps", "Reads of the bucket per second, because no control plane had decided, by result.",
			rates("mgw_key_bucket_reads_total", "result")),
		graph("Sessions resumed", "", "Sessions within 15 minutes that a proxy continued after a restart, because no control plane "+
			"responded.",
			Query{within("mgw_sessions_resumed_total", "instance"), "{{instance}}"}),
	}}
}
