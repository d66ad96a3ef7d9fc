package grafana

func lane() Dashboard {
	return Dashboard{Name: "lane", Title: "lane", About: "One lane, or some: what comes in, what its stages take, what waits and why.",
		Ask: []Variable{{"lane", "push_duplicate_bound"}, {"topic", "push_consumer_assigned_partitions"}}, Panels: []Panel{
			{"Records taken in", "By topic: the lane's own, and its retries, deferrals and holds.", Lines, perSec,
				[]Query{{`sum by (topic) (rate(push_consumed_messages_total{topic=~"$topic"}[$__rate_interval]))`, "{{topic}}"}}, false},
			{"Records that ended", "By verdict; undecided ones went to their devices.", Lines, perSec,
				[]Query{{`sum by (lane, verdict) (rate(push_endings_total{lane=~"$lane"}[$__rate_interval]))`, "{{lane}} {{verdict}}"}}, false},
			{"Waiting, by partition", "Behind the committed offset.", Lines, plain,
				[]Query{{`max by (topic, partition) (push_consumer_lag{topic=~"$topic"})`, "{{topic}} {{partition}}"}}, false},
			{"Under way", "Polled and not finished.", Lines, plain,
				[]Query{{`sum by (topic, instance) (push_consumer_open_records{topic=~"$topic"})`, "{{topic}} {{instance}}"}}, false},
			{"From record to provider's answer", "Of one in two, of one in ten, of one in a hundred.", Lines, seconds, []Query{
				{`histogram_quantile(0.5, sum by (lane, le) (rate(push_end_to_end_latency_seconds_bucket{lane=~"$lane"}[$__rate_interval])))`, "{{lane}} p50"},
				{`histogram_quantile(0.9, sum by (lane, le) (rate(push_end_to_end_latency_seconds_bucket{lane=~"$lane"}[$__rate_interval])))`, "{{lane}} p90"},
				{`histogram_quantile(0.99, sum by (lane, le) (rate(push_end_to_end_latency_seconds_bucket{lane=~"$lane"}[$__rate_interval])))`, "{{lane}} p99"}}, false},
			{"Time of a batch in each stage", "The mean; repeats are in it.", Lines, seconds,
				[]Query{{`sum by (lane, stage) (rate(push_stage_duration_seconds_sum{lane=~"$lane"}[$__rate_interval])) / sum by (lane, stage) (rate(push_stage_duration_seconds_count{lane=~"$lane"}[$__rate_interval]))`, "{{lane}} {{stage}}"}}, false},
			{"Records of a batch", "The mean.", Lines, plain,
				[]Query{{`sum by (lane) (rate(push_batch_size_sum{lane=~"$lane"}[$__rate_interval])) / sum by (lane) (rate(push_batch_size_count{lane=~"$lane"}[$__rate_interval]))`, "{{lane}}"}}, false},
			{"Copies", "Records that were a copy of one with an outcome, and were not sent.", Lines, perSec,
				[]Query{{`sum by (lane) (rate(push_deduped_total{lane=~"$lane"}[$__rate_interval]))`, "{{lane}}"}}, false},
			{"Handed over", "To retries, deferrals, holds, dead letters and feedback, acknowledged by all in-sync replicas.", Lines, perSec,
				[]Query{{`sum by (topic) (rate(push_produced_records_total[$__rate_interval]))`, "{{topic}}"}}, false},
			{"In the way", "What the lane waits for, and how long it has.", Lines, seconds,
				[]Query{{`max by (lane, reason) (push_stall_seconds{lane=~"$lane"}) > 0`, "{{lane}}: {{reason}}"}}, true},
			{"Partitions that stand still", "And why, by partition. Those that are not due wait on purpose.", Lines, seconds,
				[]Query{{`max by (topic, partition, reason) (push_partition_stall_seconds{topic=~"$topic"})`, "{{topic}} {{partition}}: {{reason}}"}}, true},
			{"Time of a commit", "Of one in two, and of one in a hundred.", Lines, seconds, []Query{
				{`histogram_quantile(0.5, sum by (group, le) (rate(push_offset_commit_duration_seconds_bucket[$__rate_interval])))`, "{{group}} p50"},
				{`histogram_quantile(0.99, sum by (group, le) (rate(push_offset_commit_duration_seconds_bucket[$__rate_interval])))`, "{{group}} p99"}}, false},
			{"Partitions that changed hands", "Assigned, revoked, and lost: a lost one means that the session ran out.", Lines, perSec,
				[]Query{{`sum by (topic, kind) (rate(push_consumer_partition_moves_total{topic=~"$topic"}[$__rate_interval]))`, "{{topic}} {{kind}}"}}, false},
			{"Sends of unknown outcome", "No answer came: sent again, or ended UNKNOWN, as the lane is set.", Lines, perSec,
				[]Query{{`sum by (action) (rate(push_ambiguous_total[$__rate_interval]))`, "{{action}}"}}, true},
			{"How full the filters of dedupe are", "Above 0.8 too many ids are confirmed: raise dedupe.capacity.", Lines, share,
				[]Query{{`max(push_dedupe_fill_ratio)`, "fullest"}}, false},
			{"Confirm reads", "By the result of an attempt.", Lines, perSec,
				[]Query{{`sum by (result) (rate(push_status_reads_total[$__rate_interval]))`, "{{result}}"}}, false},
		}}
}
