package kafka

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// The headers of records that this fleet wrote. On a lane's own topic they are
// ignored, because any producer can write them there; but for HeaderAdmitted.
const (
	headerVersion   = "pf-v"
	headerAttempt   = "pf-attempt"
	headerHops      = "pf-hops"
	headerRedrive   = "pf-redrive"
	headerNotBefore = "pf-not-before" // unix ms
	headerFirstSeen = "pf-first-seen" // unix ms
	headerState     = "pf-state"      // state of the row of this hand-over: RETRYING or HELD
	headerAllowed   = "pf-allowed"    // 1 = the limits have allowed it; absent = they have not, or nobody said
	headerPaid      = "pf-paid"       // 1 = it has a token of its sender's limits; absent = it has none
	headerDevices   = "pf-devices"    // device hashes, comma-separated; absent = all
	headerReason    = "pf-reason"
	headerDetail    = "pf-detail"
	headerProvider  = "pf-provider" // of dead letters: the providers of devices that did not get it, comma-separated
	headerSize      = "pf-size"     // of dead letters without their value: its record's size in bytes
	headerOrigin    = "pf-origin"   // topic/partition/offset of the notification's first record

	// HeaderAdmitted = 1 says that a gateway has counted it under the limits of its sender, so
	// that those of the worker do not count it again, however often it is tried. Who forges
	// it on a lane's own topic could as well forge the sender. It goes on to retries, and
	// not to dead letters.
	HeaderAdmitted = "pf-admitted"

	headerPrefix = "pf-"
	// formatVersion is the value of pf-v. Records of other versions are not read.
	formatVersion = "1"
	// yes is the one value of pf-allowed, pf-paid and pf-admitted.
	yes = "1"
	// maxStep keeps attempt + hops within a status row's step.
	maxStep = 1<<15 - 1
)

// retryHeaders are the parsed headers of a retry, deferral or hold record.
type retryHeaders struct {
	attempt, hops, redrive int
	notBefore              time.Time
	firstSeen              time.Time
	devices                []string
	allowed, paid          bool
	state                  push.State // 0 = missing
}

var errNoVersion = errors.New("header " + headerVersion + " is missing")

// parseRetryHeaders parses the headers of a retry, deferral or hold record. Whatever is
// ambiguous is an error: it is better that the partition stops than that something is
// sent to the wrong devices or too early.
func parseRetryHeaders(hs []kgo.RecordHeader) (*retryHeaders, error) {
	var h retryHeaders
	var version string
	seen := make(map[string]bool)
	for i := range hs {
		key, value := hs[i].Key, string(hs[i].Value)
		if !strings.HasPrefix(key, headerPrefix) {
			continue
		}
		if seen[key] {
			return nil, fmt.Errorf("header %s occurs twice", key)
		}
		seen[key] = true
		var err error
		switch key {
		case headerVersion:
			version = value
		case headerAttempt:
			h.attempt, err = parseCount(value)
		case headerHops:
			h.hops, err = parseCount(value)
		case headerRedrive:
			h.redrive, err = parseCount(value)
		case headerNotBefore:
			h.notBefore, err = parseTime(value)
		case headerFirstSeen:
			h.firstSeen, err = parseTime(value)
		case headerState:
			h.state, err = parseState(value)
		case headerDevices:
			h.devices, err = parseDevices(value)
		case headerAllowed:
			h.allowed, err = parseYes(value)
		case headerPaid:
			h.paid, err = parseYes(value)
		case HeaderAdmitted: // it stays with the record: items looks for it there
			_, err = parseYes(value)
		}
		if err != nil {
			return nil, fmt.Errorf("header %s is malformed: %w", key, err)
		}
	}
	switch {
	case !seen[headerVersion]:
		return nil, errNoVersion
	case version != formatVersion:
		return nil, fmt.Errorf("header %s has version %.16q, this worker knows %s", headerVersion, version, formatVersion)
	case h.attempt+h.hops > maxStep:
		return nil, fmt.Errorf("headers %s and %s add up to more than %d", headerAttempt, headerHops, maxStep)
	}
	return &h, nil
}

func parseCount(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 15)
	if err != nil {
		return 0, errors.New("not a number from 0 to 32767")
	}
	return int(n), nil
}

func parseTime(s string) (time.Time, error) {
	ms, err := strconv.ParseInt(s, 10, 64)
	if err != nil || ms < 0 || ms > 1<<53 {
		return time.Time{}, errors.New("not a time in unix milliseconds")
	}
	return time.UnixMilli(ms), nil
}

func parseState(s string) (push.State, error) {
	for _, state := range []push.State{push.StateRetrying, push.StateHeld} {
		if s == state.String() {
			return state, nil
		}
	}
	return 0, errors.New("not the state of a hand-over")
}

func parseYes(s string) (bool, error) {
	if s != yes {
		return false, errors.New("neither 1 nor absent")
	}
	return true, nil
}

func parseDevices(s string) ([]string, error) {
	if s == "" {
		return nil, errors.New("no device hashes")
	}
	devices := strings.Split(s, ",")
	for _, d := range devices {
		if d == "" || len(d) > 64 {
			return nil, errors.New("not a list of device hashes")
		}
	}
	return devices, nil
}

// origin returns topic/partition/offset of the notification's first record.
func origin(it *pipeline.Item) string {
	for i := range it.Trace {
		if it.Trace[i].Key == headerOrigin {
			return string(it.Trace[i].Value)
		}
	}
	return it.Partition.Topic + "/" + strconv.Itoa(int(it.Partition.ID)) + "/" + strconv.FormatInt(it.Offset, 10)
}
