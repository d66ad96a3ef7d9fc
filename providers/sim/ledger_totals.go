package sim

// Totals are the sums of the ledger.
type Totals struct {
	Providers map[string]ProviderTotals `json:"providers"`
	// Received counts pushes: Accepted, Refused and those that were never
	// processed. OAuth requests are not pushes, nor is what FCM was asked only to
	// validate.
	Received uint64 `json:"received"`
	Accepted uint64 `json:"accepted"`
	Refused  uint64 `json:"refused"`
	// Dropped counts pushes that got no answer, processed or not, also because
	// the client reset their streams. Answered are all others; an answer still
	// counts that a client which is gone did not read.
	Dropped  uint64 `json:"dropped"`
	Answered uint64 `json:"answered"`
	// Entries is how many different pairs of notification and device came.
	Entries uint64 `json:"entries"`
	// Duplicates counts acceptances beyond the first of their entry.
	Duplicates uint64 `json:"duplicates"`
	// WithoutID counts pushes without pf_id: they have no entry.
	WithoutID uint64 `json:"without_id"`
}

// ProviderTotals are the sums of one service.
type ProviderTotals struct {
	Received uint64            `json:"received"`
	Accepted uint64            `json:"accepted"` // for oauth: tokens granted
	Refused  uint64            `json:"refused"`
	Dropped  uint64            `json:"dropped"`
	Replies  map[string]uint64 `json:"replies"` // by name of the answer
}

// Totals adds everything up. Requests that are being answered meanwhile may or
// may not be in it.
func (l *Ledger) Totals() Totals {
	var sums [replyCount]uint64
	var hung, lost [OAuth + 1]uint64
	t := Totals{Providers: map[string]ProviderTotals{}}
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		for r, n := range s.replies {
			sums[r] += n
		}
		for p := range s.hung {
			hung[p] += s.hung[p]
			lost[p] += s.lost[p]
		}
		t.Entries += uint64(s.counts.used)
		t.Duplicates += s.repeats
		t.WithoutID += s.nameless
		s.mu.Unlock()
	}
	for i, n := range sums {
		r := Reply(i)
		if n == 0 {
			continue
		}
		p, ok := t.Providers[r.Provider().String()]
		if !ok {
			p.Replies = map[string]uint64{}
		}
		if r == FCMValidated {
			p.Replies[r.String()] = n
			t.Providers[r.Provider().String()] = p
			continue
		}
		yes := r.Accepted() || r == OAuthGranted
		p.Received += n
		p.Replies[r.String()] = n
		if yes {
			p.Accepted += n
		} else {
			p.Refused += n
		}
		t.Providers[r.Provider().String()] = p
		if r.Provider() == APNS || r.Provider() == FCM {
			t.Received += n
			if yes {
				t.Accepted += n
			} else {
				t.Refused += n
			}
		}
	}
	for i := range hung {
		t.addDropped(Provider(i), hung[i], lost[i])
	}
	t.Answered = t.Received - min(t.Received, t.Dropped)
	return t
}

func (t *Totals) addDropped(p Provider, hung, lost uint64) {
	if hung == 0 && lost == 0 {
		return
	}
	sums := t.Providers[p.String()]
	if sums.Replies == nil {
		sums.Replies = map[string]uint64{}
	}
	sums.Received += hung
	sums.Dropped += lost
	t.Providers[p.String()] = sums
	if p == APNS || p == FCM {
		t.Received += hung
		t.Dropped += lost
	}
}
