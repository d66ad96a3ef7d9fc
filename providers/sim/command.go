package sim

import (
	"errors"
	"fmt"
	"time"
)

// Command is one order to the simulator, by the admin API (POST /commands), by
// a schedule or by Server.Command. Do says which fields count:
//
//	an act's name   Provider, Reply (for "answer"), Times, For, Conn, To, Reason, Unprocessed, Shutdowns
//	faults          Faults: replaces what goes wrong by chance at a provider
//	rules           Rules: replaces all rules; what is left out is off
//	lifelike        all rules on, with the numbers of LifelikeRules
//	token           Token: marks a device token
//	clock           Step and Rate
//	calm            takes back the commands that still wait for requests
//
// An act on a whole connection is done at once to all open connections of the
// provider (a connection belongs to the provider of its first request), or to
// Conn only. With Times it waits for requests instead: that many more are its
// occasion. All other acts wait for requests: for Times of them (0 means one),
// or with For for all in that time ("answer" and "hang"). Those may be for what
// is addressed to one app: To is its topic at Apple, or its Firebase project.
type Command struct {
	Do       string   `json:"do"`
	Provider string   `json:"provider,omitempty"`
	Reply    string   `json:"reply,omitempty"`
	Times    int      `json:"times,omitempty"`
	For      Interval `json:"for,omitempty"`
	Conn     uint64   `json:"conn,omitempty"`
	To       string   `json:"to,omitempty"`

	Reason      string `json:"reason,omitempty"`
	Unprocessed int    `json:"unprocessed,omitempty"`
	Shutdowns   int    `json:"shutdowns,omitempty"`

	Faults *FaultOrder `json:"faults,omitempty"`
	Rules  *RuleOrder  `json:"rules,omitempty"`
	Token  *TokenOrder `json:"token,omitempty"`

	Step Interval `json:"step,omitempty"`
	Rate float64  `json:"rate,omitempty"` // 0 means 1
}

// Interval is a time.Duration written as "50ms".
type Interval time.Duration

// UnmarshalText parses it.
func (i *Interval) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*i = Interval(d)
	return err
}

// MarshalText writes it.
func (i Interval) MarshalText() ([]byte, error) { return []byte(time.Duration(i).String()), nil }

// Command carries out an order. It returns an error, and has done nothing, if
// the order makes no sense.
func (s *Server) Command(c Command) error { return s.command(&c, byCommand) }

func (s *Server) command(c *Command, by string) error {
	run, err := c.plan()
	if err != nil {
		return fmt.Errorf("command %q: %w", c.Do, err)
	}
	run(s, by)
	return nil
}

// plan checks a command, and returns how to carry it out.
func (c *Command) plan() (func(s *Server, by string), error) {
	switch c.Do {
	case "faults":
		p, f, err := c.Faults.faults()
		return func(s *Server, _ string) { s.policy.setFaults(p, f) }, err
	case "rules":
		if c.Rules == nil {
			return nil, errors.New("rules are missing")
		}
		r := c.Rules.rules()
		return func(s *Server, _ string) { s.setRules(r) }, r.Validate()
	case "lifelike":
		return func(s *Server, _ string) { s.setRules(LifelikeRules()) }, nil
	case "token":
		set, err := c.Token.plan()
		return func(s *Server, _ string) { set(s.Devices()) }, err
	case "clock":
		rate := c.Rate
		if rate == 0 {
			rate = 1
		}
		if err := checkRate(rate); err != nil {
			return nil, err
		}
		// The rate is checked: it cannot fail any more.
		return func(s *Server, _ string) { _ = s.SetClock(time.Duration(c.Step), rate) }, nil
	case "calm":
		return func(s *Server, _ string) { s.policy.orders.clear() }, nil
	}
	return c.planAct()
}

func (c *Command) planAct() (func(s *Server, by string), error) {
	p, a, err := act(c.Do, c.Provider, c.Reply)
	if err != nil {
		return nil, err
	}
	a.For, a.Reason, a.Unprocessed, a.Shutdowns = time.Duration(c.For), c.Reason, c.Unprocessed, c.Shutdowns
	if c.Times < 0 {
		return nil, errors.New("times is negative")
	}
	if c.To != "" && (a.Do == DoRefuse || p == OAuth || a.Do.connection() && c.Times == 0) {
		return nil, errors.New("to: only a request of apns or fcm is addressed to an app")
	}
	if a.Do == DoRefuse && c.Times == 0 {
		return func(s *Server, by string) { s.dials.refuseAll(&a, by) }, a.Validate(APNS)
	}
	if a.Do.connection() && c.Times == 0 {
		return func(s *Server, by string) {
			for _, open := range s.sessions(p, c.Conn) {
				open.do(&a, by, 0)
			}
		}, a.Validate(APNS)
	}
	if p == Nobody {
		return nil, errors.New("provider: apns, fcm or oauth")
	}
	o := order{provider: p, conn: c.Conn, home: c.To, act: a, times: c.Times}
	window := c.For > 0 && (a.Do == DoAnswer || a.Do == DoHang)
	if c.Times == 0 && !window {
		o.times = 1
	}
	return func(s *Server, by string) {
		o.by = by
		if window {
			o.until = s.policy.clock.Now().Add(a.For)
		}
		s.policy.orders.add(o)
	}, a.Validate(p)
}

// act reads an act's name, with its provider and its answer where it has one.
func act(do, provider, reply string) (p Provider, a Act, err error) {
	var ok bool
	if a.Do, ok = ParseDo(do); !ok {
		return p, a, errors.New("no command of that name")
	}
	if provider != "" {
		if p, ok = ParseProvider(provider); !ok {
			return p, a, errors.New("provider: apns, fcm or oauth")
		}
	}
	if a.Do == DoAnswer {
		if a.Reply, ok = ParseReply(p, reply); !ok {
			return p, a, fmt.Errorf("reply: %s has no answer %q", p, reply)
		}
	}
	return p, a, nil
}

// SetClock moves the simulated time by a step and sets the rate it runs at; see
// Clock.Set.
func (s *Server) SetClock(step time.Duration, rate float64) error {
	if err := s.policy.clock.Set(step, rate); err != nil {
		return err
	}
	s.engine.Wake()
	return nil
}

// SetRules replaces what comes about by what clients do, from now on.
func (s *Server) SetRules(r Rules) error {
	if err := r.Validate(); err != nil {
		return fmt.Errorf("setting rules: %w", err)
	}
	s.setRules(r)
	return nil
}

func (s *Server) setRules(r Rules) {
	s.policy.rules.Store(&r)
	s.engine.Wake()
}

// Rules returns what comes about by what clients do.
func (s *Server) Rules() Rules { return *s.policy.rules.Load() }

// Clock is the simulated clock. To set it, use SetClock.
func (s *Server) Clock() *Clock { return s.policy.clock }

// Events is the log of all that was not just an acceptance.
func (s *Server) Events() *Events { return s.policy.events }
