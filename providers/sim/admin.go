package sim

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Admin is the admin API: asking the ledger, marking tokens, setting faults.
// It is served by StartAdmin, and may be mounted elsewhere. All times are
// strings as of time.ParseDuration, or RFC 3339.
//
//	GET  /ledger                 Totals
//	GET  /ledger?id=ID           the entries of one notification
//	GET  /ledger?device=HASH     the entries of one device, by its hash
//	GET  /ledger/entries         every entry, as JSON lines
//	POST /ledger/reset
//	POST /tokens                 {"provider":"apns","token":"…","reply":"Unregistered","since":"…","times":0,"home":"…"}
//	POST /faults                 {"provider":"fcm","unavailable":0.02,"retry_after":"10s","latency":"50ms","jitter":"10ms"}
//	POST /commands               {"do":"drain","provider":"apns","unprocessed":3}; see Command
//	POST /schedule               [{"at":"5m","command":{"do":"answer","provider":"fcm","reply":"UNAVAILABLE","for":"2m"}}]
//	GET  /events                 the events, as JSON lines; ?after=SEQ, ?behaviour=N, ?conn=N
//	GET  /clock                  the simulated time
//	POST /access-tokens/revoke
//	GET  /ca.pem                 the certificate to trust
func (s *Server) Admin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ledger", s.getLedger)
	mux.HandleFunc("GET /ledger/entries", s.getEntries)
	mux.HandleFunc("POST /ledger/reset", func(w http.ResponseWriter, _ *http.Request) {
		s.Ledger().Reset()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /tokens", s.postTokens)
	mux.HandleFunc("POST /commands", s.postCommands)
	mux.HandleFunc("POST /schedule", s.postSchedule)
	mux.HandleFunc("GET /events", s.getEvents)
	mux.HandleFunc("GET /clock", s.getClock)
	mux.HandleFunc("POST /faults", s.postFaults)
	mux.HandleFunc("POST /access-tokens/revoke", func(w http.ResponseWriter, _ *http.Request) {
		s.RevokeAccessTokens()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /ca.pem", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-pem-file")
		_, _ = w.Write(s.ca.pem)
	})
	return mux
}

// entryJSON is an Entry as the admin API spells it.
type entryJSON struct {
	Key      string `json:"key"`
	ID       string `json:"id,omitempty"`
	Device   string `json:"device,omitempty"`
	Accepted int    `json:"accepted"`
	Refused  int    `json:"refused"`
	Dropped  int    `json:"dropped"`
	Provider string `json:"provider"`
	Last     string `json:"last"`
}

func spell(e Entry) entryJSON {
	return entryJSON{fmt.Sprintf("%016x", e.Key), e.ID, e.Device, e.Accepted, e.Refused, e.Dropped, e.Last.Provider().String(), e.Last.String()}
}

func (s *Server) getLedger(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if !query.Has("id") && !query.Has("device") {
		respond(w, s.Ledger().Totals())
		return
	}
	if s.options.CountOnly {
		http.Error(w, "the ledger only counts: it keeps no ids", http.StatusConflict)
		return
	}
	entries := []entryJSON{}
	found := s.Ledger().Notification
	name := query.Get("id")
	if name == "" {
		found, name = s.Ledger().Device, query.Get("device")
	}
	for _, e := range found(name) {
		entries = append(entries, spell(e))
	}
	respond(w, entries)
}

func (s *Server) getEntries(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/jsonl")
	b := bufio.NewWriterSize(w, 64<<10)
	lines := json.NewEncoder(b)
	// A slow reader must not hold up the pushes: each shard is copied first.
	s.Ledger().eachCopied(func(e Entry) bool { return lines.Encode(spell(e)) == nil })
	_ = b.Flush() // a reader that is gone needs no rest
}

func (s *Server) postTokens(w http.ResponseWriter, r *http.Request) {
	each(w, r, func(o *TokenOrder) error {
		set, err := o.plan()
		if err == nil {
			set(s.Devices())
		}
		return err
	})
}

func (s *Server) postFaults(w http.ResponseWriter, r *http.Request) {
	each(w, r, func(o *FaultOrder) error {
		p, f, err := o.faults()
		if err == nil {
			s.policy.setFaults(p, f)
		}
		return err
	})
}

func (s *Server) postCommands(w http.ResponseWriter, r *http.Request) {
	each(w, r, func(c *Command) error { return s.Command(*c) })
}

func (s *Server) postSchedule(w http.ResponseWriter, r *http.Request) {
	each(w, r, func(list *[]Scheduled) error { return s.Schedule(*list...) })
}

// getEvents answers JSON lines.
func (s *Server) getEvents(w http.ResponseWriter, r *http.Request) {
	var after, behaviour, conn uint64
	for name, dst := range map[string]*uint64{"after": &after, "behaviour": &behaviour, "conn": &conn} {
		if text := r.URL.Query().Get(name); text != "" {
			n, err := strconv.ParseUint(text, 10, 63)
			if err != nil {
				http.Error(w, name+": not a number", http.StatusBadRequest)
				return
			}
			*dst = n
		}
	}
	w.Header().Set("Content-Type", "application/jsonl")
	lines := json.NewEncoder(w)
	for _, e := range s.Events().After(after, int(behaviour)) {
		if (conn == 0 || e.Conn == conn) && lines.Encode(e) != nil {
			return // a reader that is gone
		}
	}
}

func (s *Server) getClock(w http.ResponseWriter, _ *http.Request) {
	respond(w, struct {
		Now     time.Time `json:"now"`
		Elapsed Interval  `json:"elapsed"`
		Rate    float64   `json:"rate"`
	}{s.Clock().Now(), Interval(s.Clock().Elapsed()), s.Clock().hands.Load().rate})
}

// each carries out every order in a body: one JSON value, or several one after
// another.
func each[T any](w http.ResponseWriter, r *http.Request, order func(*T) error) {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	for n := 1; ; n++ {
		var o T
		err := d.Decode(&o)
		if err == io.EOF && n > 1 {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if err == nil {
			err = order(&o)
		}
		if err != nil {
			http.Error(w, fmt.Sprintf("order %d: %v", n, err), http.StatusBadRequest)
			return
		}
	}
}

func respond(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v) // only a reader that is gone
}
