package grafana

// own leaves out what is not a lane's own topic: what waits there waits on purpose.
const own = `topic!~".+[.](retry|defer|hold)[.].+"`

func fleet() Dashboard {
	return Dashboard{Name: "fleet", Title: "fleet", About: "All workers together: what goes out, what waits, and whether something is in the way.", Panels: []Panel{
		{"Delivered a second", "Pushes that Apple or Google has accepted.", Figure, perSec,
			[]Query{{`sum(rate(push_deliveries_total{result="delivered"}[1m]))`, ""}}, false},
		{"Queued", "Records of the lanes' own topics behind the committed offset; up to a window of each partition is under way.", Figure, plain,
			[]Query{{`sum(max by (topic, partition) (push_consumer_lag{` + own + `}))`, ""}}, false},
		{"Under way", "Records polled and not finished.", Figure, plain, []Query{{`sum(push_consumer_open_records)`, ""}}, false},
		{"Workers", "Workers that work on a lane.", Figure, plain, []Query{{`count(count by (instance) (push_duplicate_bound))`, ""}}, false},
		{"Dead letters an hour", "Records handed to the dead-letter topics.", Figure, plain,
			[]Query{{`sum(increase(push_produced_records_total{topic=~".+[.]dlq"}[1h]))`, ""}}, true},
		{"Could be sent twice", "The most sends that a hard kill of one worker can repeat, of the worker with the most.", Figure, plain,
			[]Query{{`max(sum by (instance) (push_duplicate_bound))`, ""}}, false},

		{"Sends by what became of them", "One line each for all devices: delivered, refused, gone, tried again, held.", Lines, perSec,
			[]Query{{`sum by (provider, result) (rate(push_deliveries_total[$__rate_interval]))`, "{{provider}} {{result}}"}}, false},
		{"Records that ended", "By verdict; undecided ones went to their devices.", Lines, perSec,
			[]Query{{`sum by (verdict) (rate(push_endings_total[$__rate_interval]))`, "{{verdict}}"}}, false},
		{"Waiting, by topic", "The lanes' own topics. Retries, deferrals and holds wait on purpose; they are on the page of their lane.", Lines, plain,
			[]Query{{`sum by (topic) (max by (topic, partition) (push_consumer_lag{` + own + `}))`, "{{topic}}"}}, false},
		{"From record to provider's answer", "Of one in two, and of one in a hundred. A backlog shows here.", Lines, seconds, []Query{
			{`histogram_quantile(0.5, sum by (lane, le) (rate(push_end_to_end_latency_seconds_bucket[$__rate_interval])))`, "{{lane}} p50"},
			{`histogram_quantile(0.99, sum by (lane, le) (rate(push_end_to_end_latency_seconds_bucket[$__rate_interval])))`, "{{lane}} p99"}}, false},
		{"In the way", "What something waits for, and how long it has: a store that is away, a route that is stopped, a rate that is used up. docs/operations.md explains each.", Lines, seconds,
			[]Query{{`max by (lane, reason) (push_stall_seconds) > 0`, "{{lane}}: {{reason}}"}}, true},
		{"Standing still without a reason", "At 60 s the worker ends itself, with a dump in its log.", Lines, seconds,
			[]Query{{`max by (instance, lane) (push_standstill_seconds)`, "{{instance}} {{lane}}"}}, false},
		{"Steps that failed and are repeated", "By step. Nothing is lost by it, and nothing goes on until it works.", Lines, perSec,
			[]Query{{`sum by (step) (rate(push_step_failures_total[$__rate_interval]))`, "{{step}}"}}, true},
		{"Partitions of each worker", "", Lines, plain, []Query{{`sum by (instance) (push_consumer_assigned_partitions)`, "{{instance}}"}}, false},
		{"Status rows", "Rows that Cassandra has, or what it said instead. All but ok are written again.", Lines, perSec,
			[]Query{{`sum by (result) (rate(push_status_writes_total[$__rate_interval]))`, "{{result}}"}}, false},
		{"Time of a batch of status rows", "Of one in two, and of one in a hundred.", Lines, seconds, []Query{
			{`histogram_quantile(0.5, sum by (le) (rate(push_status_write_duration_seconds_bucket[$__rate_interval])))`, "p50"},
			{`histogram_quantile(0.99, sum by (le) (rate(push_status_write_duration_seconds_bucket[$__rate_interval])))`, "p99"}}, false},
		{"Webhooks by what endpoints answered", "Calls that tell senders of ends of their notifications.", Lines, perSec,
			[]Query{{`sum by (sender, result) (rate(push_webhook_calls_total[$__rate_interval]))`, "{{sender}} {{result}}"}}, true},
		{"Webhooks in push.webhooks-dlq", "What senders were not told, in an hour: not taken by their endpoint, or by their topic. pushctl webhooks redeliver posts it again.", Lines, plain, []Query{
			{`sum by (sender, reason) (increase(push_webhook_dead_letters_total[1h]))`, "{{sender}} {{reason}}"},
			{`sum by (sender) (increase(push_ends_dead_letters_total[1h]))`, "{{sender}} topic_refused"}}, true},
		{"Endpoints of webhooks that rest", "1 while a process leaves the endpoint alone.", Lines, plain, []Query{{`max by (sender) (push_webhook_resting)`, "{{sender}}"}}, true},
		{"Processor time of each process", "1 is one core.", Lines, plain, []Query{{`rate(process_cpu_seconds_total[$__rate_interval])`, "{{instance}}"}}, false},
		{"Memory of each process", "", Lines, octets, []Query{{`process_resident_memory_bytes`, "{{instance}}"}}, false},
		{"Users that are not applied yet", "Changes of push.users that are not in Redis: opt-outs, log-outs, new devices.", Lines, plain,
			[]Query{{`max by (instance) (push_registry_lag_records)`, "{{instance}}"}}, false},
		{"User shards that are complete", "Of 256. Partitions wait for one that is not.", Lines, plain, []Query{{`max(push_registry_shards_ready)`, "ready"}}, false},
		{"Builds", "What runs where.", Rows, plain, []Query{{`max by (instance, version, revision) (push_build_info)`, ""}}, false},
	}}
}
