package gateway

import "fmt"

// pair finds the lines of a batch that have the id of one before them, among those that go. That one
// alone is produced: a line that says the same becomes its twin and gets what becomes of it, and any
// other is another message with its id.
func (g *Gateway) pair(s *sending) {
	if len(s.entries) < 2 {
		return
	}
	if s.byID == nil {
		s.byID = make(map[string]*entry, len(s.entries))
	}
	for _, e := range s.entries {
		if !e.goes() {
			continue
		}
		switch before := s.byID[e.id]; {
		case before == nil:
			s.byID[e.id] = e
		case before.sum == e.sum:
			e.twin = before
		default:
			g.o.Metrics.refused(codeIDTaken)
			e.problem = newProblem(codeIDTaken, fmt.Sprintf("line %d of this batch is another message with this id; this one was not sent", before.line)).of(e.id)
		}
	}
	clear(s.byID)
}

// settleTwins gives twins what became of the lines before them.
func (g *Gateway) settleTwins(s *sending) {
	for _, e := range s.entries {
		switch before := e.twin; {
		case before == nil:
		case before.problem != nil:
			problem := *before.problem
			e.problem = &problem
		default:
			c := s.claimOf(before, before.place)
			g.repeats(e, &c)
		}
	}
}
