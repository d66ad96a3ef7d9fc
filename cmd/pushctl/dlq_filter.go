package main

import (
	"cmp"
	"slices"

	"github.com/spf13/pflag"

	"github.com/pushfleet/pushfleet/push"
)

// letterFilter picks dead letters. An empty list lets everything through; a
// letter passes if it passes all that are given.
type letterFilter struct {
	lanes, reasons, apps, senders, providers, ids []string
	since, until                                  moment
	all                                           bool // also those that were redriven or dismissed
}

func (f *letterFilter) flags(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.lanes, "lane", nil, "only of this lane, or this topic; default: all `lanes`")
	flags.StringSliceVar(&f.reasons, "reason", nil, "only with this reason `code` (docs/reasons.md), or this last word of a provider")
	flags.StringSliceVar(&f.apps, "app", nil, "only of this `app`")
	flags.StringSliceVar(&f.senders, "sender", nil, "only of this `sender_id`")
	flags.StringSliceVar(&f.providers, "provider", nil, "only for this `provider`: apns or fcm")
	flags.StringSliceVar(&f.ids, "id", nil, "only of this notification `id`")
	flags.Var(&f.since, "since", "only dead-lettered at this time or later: RFC 3339, a day, or a duration before now")
	flags.Var(&f.until, "until", "only dead-lettered before this time")
	flags.BoolVar(&f.all, "all", false, "also those that were redriven or dismissed")
}

// check finds words that could pass nothing.
func (f *letterFilter) check() error {
	for _, p := range f.providers {
		if _, ok := push.ParsePlatform(p); !ok {
			return usagef("--provider: %q is neither apns nor fcm", p)
		}
	}
	if !f.since.IsZero() && !f.until.IsZero() && !f.since.Before(f.until.Time) {
		return usagef("--since is not before --until: nothing lies between")
	}
	return nil
}

func (f *letterFilter) passes(l *letter) bool {
	switch {
	case l.marked && !f.all,
		!f.since.IsZero() && l.Timestamp.Before(f.since.Time),
		!f.until.IsZero() && !l.Timestamp.Before(f.until.Time),
		!among(f.ids, l.message.ID),
		!among(f.apps, l.message.App),
		!among(f.senders, l.message.SenderID),
		!among(f.reasons, l.Reason) && !slices.Contains(f.reasons, cmp.Or(lastAnswer(l), l.Reason)):
		return false
	}
	return len(f.providers) == 0 || slices.ContainsFunc(l.providers(), func(p string) bool { return slices.Contains(f.providers, p) })
}

// among reports whether s is one of the words, or all are welcome.
func among(words []string, s string) bool { return len(words) == 0 || slices.Contains(words, s) }
