package grafana

func provider() Dashboard {
	return Dashboard{Name: "provider", Title: "providers", About: "The routes to Apple and Google: what they answer, what they let us send, and what waits for them.",
		Ask: []Variable{{"route", "push_provider_connections"}, {"app", "push_provider_responses_total"}}, Panels: []Panel{
			{"Answers, by reason", "The provider's own words; docs/reasons.md explains them.", Lines, perSec,
				[]Query{{`sum by (provider, app, reason) (rate(push_provider_responses_total{app=~"$app"}[$__rate_interval]))`, "{{provider}} {{app}} {{reason}}"}}, false},
			{"Answers, by class", "What they mean to us.", Lines, perSec,
				[]Query{{`sum by (provider, app, class) (rate(push_provider_responses_total{app=~"$app"}[$__rate_interval]))`, "{{provider}} {{app}} {{class}}"}}, false},
			{"Paused routes", "1: by some worker.", Lines, plain, []Query{{`max by (route) (push_route_paused{route=~"$route"})`, "{{route}}"}}, false},
			{"Pauses, by reason", "Of all workers.", Lines, plain,
				[]Query{{`sum by (route, reason) (increase(push_route_pauses_total{route=~"$route"}[$__rate_interval]))`, "{{route}} {{reason}}"}}, false},
			{"The fleet's rate", "Sends a second that it may make to what the provider counts; 0 = no limit.", Lines, perSec,
				[]Query{{`max by (rate) (push_route_rate)`, "{{rate}}"}}, false},
			{"Changes of the rate", "And why.", Lines, plain,
				[]Query{{`sum by (rate, cause) (increase(push_route_rate_changes_total[$__rate_interval]))`, "{{rate}} {{cause}}"}}, false},
			{"Under way", "Sent, and the status not durable yet.", Lines, plain, []Query{{`sum by (route) (push_provider_inflight{route=~"$route"})`, "{{route}}"}}, false},
			{"Waiting for a stream", "Requests that no connection has room for.", Lines, plain, []Query{{`sum by (route) (push_provider_waiting{route=~"$route"})`, "{{route}}"}}, false},
			{"Streams", "In use, of those that the open connections may have.", Lines, plain, []Query{
				{`sum by (route) (push_provider_streams{route=~"$route"})`, "{{route}} in use"},
				{`sum by (route) (push_provider_streams_granted{route=~"$route"})`, "{{route}} granted"}}, false},
			{"Connections", "", Lines, plain, []Query{{`sum by (route) (push_provider_connections{route=~"$route"})`, "{{route}}"}}, false},
			{"Connections that end and begin", "Attempts, those that failed, and GOAWAY frames.", Lines, perSec, []Query{
				{`sum by (route) (rate(push_provider_dials_total{route=~"$route"}[$__rate_interval]))`, "{{route}} dials"},
				{`sum by (route) (rate(push_provider_dial_failures_total{route=~"$route"}[$__rate_interval]))`, "{{route}} failed"},
				{`sum by (route) (rate(push_provider_goaways_total{route=~"$route"}[$__rate_interval]))`, "{{route}} GOAWAY"}}, false},
			{"Sent again at once, and slowed down", "Requests that the server had not accepted, and times that it asked a whole pool to slow down.", Lines, perSec, []Query{
				{`sum by (route) (rate(push_provider_resends_total{route=~"$route"}[$__rate_interval]))`, "{{route}} sent again"},
				{`sum by (route) (rate(push_provider_slowdowns_total{route=~"$route"}[$__rate_interval]))`, "{{route}} slowed"}}, false},
			{"Tokens called dead", "Reports that removed a device, or did not.", Lines, perSec,
				[]Query{{`sum by (result) (rate(push_feedback_records_total[$__rate_interval]))`, "{{result}}"}}, false},
			{"Dead tokens that are kept", "The provider calls too many of the app's dead: look before they are lost.", Lines, perSec,
				[]Query{{`sum by (app) (rate(push_tokens_kept_total{app=~"$app"}[$__rate_interval]))`, "{{app}}"}}, true},
		}}
}
