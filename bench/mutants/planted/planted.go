//go:build planted

package planted

import (
	"os"
	"strings"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/worker"
)

// soil is where something is planted: one pipeline before it is made.
type soil struct {
	pipeline.Options
	stats func(push.Route) h2.Stats
}

// Plant makes a worker do wrong what the environment says.
func Plant(o *worker.Options) {
	if addr := os.Getenv(Store); addr != "" {
		o.OpenStatus = openRemote(addr)
	}
	o.Wrap = spoil
}

// spoil spoils the pipeline's collaborators as the environment says.
func spoil(o pipeline.Options, stats func(push.Route) h2.Stats) pipeline.Options {
	s := &soil{Options: o, stats: stats}
	if name := os.Getenv(Bug); name != "" {
		spoil, known := bugs[name]
		if !known {
			panic("planted: there is no bug " + name)
		}
		spoil(s)
	}
	// A crash point is one of the lane's own topic: what retry records do at it
	// is their business.
	if spec := os.Getenv(Crash); spec != "" && !strings.HasSuffix(o.Lane, ".retry") {
		s.crashAt(spec)
	}
	return s.Options
}

// bugs are the bugs that can be planted, by name. bench/mutants/README.md says
// what each is and who finds it.
var bugs = map[string]func(*soil){
	"commit-before-status":   commitBeforeStatus,
	"timeout-is-success":     timeoutIsSuccess,
	"late-is-durable":        lateIsDurable,
	"commit-gap":             commitGap,
	"commit-after-revoke":    commitAfterRevoke,
	"mark-after-revoke":      markAfterRevoke,
	"ignore-revoked":         ignoreRevoked,
	"ignore-lease":           ignoreLease,
	"lease-by-clock":         leaseByClock,
	"send-before-intents":    sendBeforeIntents,
	"send-before-commit":     sendBeforeCommit,
	"skip-reread":            skipReread,
	"resend-intent":          resendIntent,
	"drop-last-record":       dropLastRecord,
	"ignore-expiry":          ignoreExpiry,
	"confirm-from-nothing":   confirmFromNothing,
	"trust-filter":           trustFilter,
	"lose-on-store-error":    loseOnStoreError,
	"wiped-is-no-device":     wipedIsNoDevice,
	"skip-third-device":      skipThirdDevice,
	"ignore-opt-out":         ignoreOptOut,
	"limiter-counts-twice":   limiterCountsTwice,
	"limiter-forgets":        limiterForgets,
	"retry-is-delivered":     retryIsDelivered,
	"silence-is-delivered":   silenceIsDelivered,
	"resend-and-retry":       resendAndRetry,
	"resend-on-goaway":       resendOnGoAway,
	"ack-retry-unproduced":   ackRetryUnproduced,
	"ack-dlq-unproduced":     ackDLQUnproduced,
	"ignore-produce-refusal": ignoreProduceRefusal,
	"row-before-retry":       rowBeforeRetry,
	"row-before-dlq":         rowBeforeDLQ,
	"later-is-unknown":       laterIsUnknown,
	"resend-ambiguous":       resendAmbiguous,
	"ignore-drop-ambiguous":  ignoreDropAmbiguous,
	"release-answered":       releaseAnswered,
	"first-tier-always":      firstTierAlways,
	"retry-without-floor":    retryWithoutFloor,
	"ignore-retry-after":     ignoreRetryAfter,
	"stop-forgets-rows":      stopForgetsRows,
	"skip-recheck":           skipRecheck,
	"count-gaps":             countGaps,
	"trust-forgotten":        trustForgotten,
	"drop-held":              dropHeld,
	"retry-ignores-expiry":   retryIgnoresExpiry,
	"later-is-gone":          laterIsGone,
}
