package grafana

func limits() Dashboard {
	return Dashboard{Name: "limits", Title: "limits and preferences", About: "Who is not sent what, and by which rule.",
		Ask: []Variable{{"lane", "push_duplicate_bound"}}, Panels: []Panel{
			{"Not allowed", "The share of what limits were asked about.", Figure, share,
				[]Query{{`sum(rate(push_rate_limit_checks_total{action!~"allowed|bypassed|uncounted"}[5m])) / sum(rate(push_rate_limit_checks_total[5m]))`, ""}}, true},
			{"Suppressed a second", "Notifications that are not sent on purpose, by limits or wishes of users.", Figure, perSec,
				[]Query{{`sum(rate(push_suppressed_total{lane=~"$lane"}[5m]))`, ""}}, false},
			{"Suppressed, by reason", "docs/reasons.md explains them.", Lines, perSec,
				[]Query{{`sum by (lane, reason) (rate(push_suppressed_total{lane=~"$lane"}[$__rate_interval]))`, "{{lane}} {{reason}}"}}, false},
			{"What limits said", "By priority and what followed.", Lines, perSec,
				[]Query{{`sum by (priority, action) (rate(push_rate_limit_checks_total[$__rate_interval]))`, "{{priority}} {{action}}"}}, false},
			{"Not allowed, by rule", "", Lines, perSec,
				[]Query{{`sum by (dimension, rule) (rate(push_rate_limit_exceeded_total[$__rate_interval]))`, "{{dimension}} {{rule}}"}}, false},
			{"By how much", "Of what was not allowed, by how much it would have exceeded the limit: one in two, and one in ten. 1: nothing more was allowed.", Lines, plain, []Query{
				{`histogram_quantile(0.5, sum by (dimension, le) (rate(push_rate_limit_overage_bucket[$__rate_interval])))`, "{{dimension}} p50"},
				{`histogram_quantile(0.9, sum by (dimension, le) (rate(push_rate_limit_overage_bucket[$__rate_interval])))`, "{{dimension}} p90"}}, false},
			{"Critical that was lowered", "Notifications of priority critical whose sender may not use it.", Lines, perSec,
				[]Query{{`sum by (lane) (rate(push_priority_lowered_total{lane=~"$lane"}[$__rate_interval]))`, "{{lane}}"}}, false},
			{"Limits and preferences in force", "0: a configuration was read that was refused, and the former one holds.", Lines, plain,
				[]Query{{`min by (instance) (push_config_last_reload_successful)`, "{{instance}}"}}, false},
		}}
}
