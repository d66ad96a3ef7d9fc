package status

import "context"

// Session lends what keeps the store connected to those who have other tables
// in its keyspace: a session that is replaced when it does not heal. It makes
// one attempt for each call: who calls repeats. All methods may be called at
// once.
type Session struct{ cluster *cluster }

// OpenSession connects, in one attempt that ends with ctx: to wait for a server,
// repeat it. Of opts it uses what is about hosts, keyspace, consistency,
// time-out and connections; it looks at no table. Close ends it.
func OpenSession(ctx context.Context, opts Options) (*Session, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	cl, err := connect(ctx, opts, opts.Keyspace)
	if err != nil {
		return nil, err
	}
	cl.heal(func() {})
	return &Session{cl}, nil
}

// Close ends the session. Calls in progress fail.
func (s *Session) Close() { s.cluster.close() }

// Exec runs a statement that changes something. It has to be idempotent: after
// an error it may have been applied.
func (s *Session) Exec(ctx context.Context, statement string, values ...any) error {
	return s.attempt(ctx, func(ctx context.Context, l *link) error {
		return l.Query(statement, values...).WithContext(ctx).Exec()
	})
}

// Query reads the rows that a statement finds: each into dest, which are
// pointers, before row is called. After an error some may be missing.
func (s *Session) Query(ctx context.Context, statement string, values, dest []any, row func()) error {
	return s.attempt(ctx, func(ctx context.Context, l *link) error {
		iter := l.Query(statement, values...).WithContext(ctx).Iter()
		for iter.Scan(dest...) {
			row()
		}
		return iter.Close()
	})
}

func (s *Session) attempt(ctx context.Context, run func(context.Context, *link) error) error {
	own, cancel := context.WithTimeout(ctx, s.cluster.opts.Timeout)
	defer cancel()
	l := s.cluster.use()
	defer l.done()
	err := noAnswer(survived(func() error { return run(own, l) }), s.cluster.opts.Timeout)
	if ctx.Err() == nil { // a caller who gave up says nothing about the server
		s.cluster.observe(l, classify(err), err)
	}
	return err
}
