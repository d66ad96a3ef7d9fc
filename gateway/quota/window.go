package quota

// window is one policy of a sender as one gateway has it: the part of the window that is, and
// of the one that comes. Not safe for concurrent use.
type window struct {
	Policy
	length int64 // ns
	end    int64 // of cur, by Redis's clock
	low    int64 // of cur: less held is too little
	cur    part
	next   part

	greatest int   // that was had in one that ended since Fullest told
	refused  int64 // messages since then, because of this policy
}

// has is how many messages were had in the window, as far as is known here. At most Limit.
func (w *window) has() int { return int(min(w.cur.others+w.cur.used, int64(w.Limit))) }

// part is a gateway's part of one window.
type part struct {
	number int64 // windows since 1970
	used   int64 // admitted
	held   int64 // leased, and not used
	others int64 // what the other gateways had, used or held, as told last
	asked  bool  // it was asked for before it began
	told   bool  // Redis has told of it
	shared bool  // since Redis is away it has its part of the limit
	unsure bool  // Redis may know of more that was used here
}

// count is what Redis should count for this gateway.
func (p *part) count() int64 { return p.used + p.held }

// keep gives back what is held beyond so much, if it is more than most.
func (p *part) keep(held, most int64) {
	if p.held > most {
		p.held = held
	}
}

// free is what nobody has had yet, as far as is known here. Not negative.
func (w *window) free(p *part) int64 { return max(int64(w.Limit)-p.others-p.count(), 0) }

// begun reports whether the window has begun by all that Redis's clock can show.
func (w *window) begun(earliest int64) bool { return earliest >= w.end-w.length }

// roll goes on to the window that may be now. What was held of the former one lapses.
func (w *window) roll(latest int64) (rolled bool) {
	if latest < w.end {
		return false
	}
	w.greatest = max(w.greatest, w.has())
	n := latest / w.length
	if w.next.number == n {
		w.cur = w.next
	} else {
		w.cur = part{number: n}
	}
	w.next, w.end = part{number: n + 1}, (n+1)*w.length
	return true
}

// reseat is roll for a Redis whose clock has been set: it may also go back, to a window of
// which Redis knows more.
func (w *window) reseat(latest int64) {
	if w.roll(latest) || latest >= w.end-w.length {
		return
	}
	n := latest / w.length
	w.next = part{number: n + 1, unsure: true}
	if w.cur.number == n+1 {
		w.next = w.cur
	}
	w.cur, w.end = part{number: n, unsure: true}, (n+1)*w.length
}

// at is the part of the window with this number; nil = it is over, or far off.
func (w *window) at(number int64) *part {
	switch number {
	case w.cur.number:
		return &w.cur
	case w.next.number:
		return &w.next
	}
	return nil
}

// share gives the gateway its part of what it knows to be left, while Redis is away.
func (w *window) share(gateways int64) {
	p := &w.cur
	if p.shared {
		return
	}
	p.shared = true
	left := int64(w.Limit)
	if p.told {
		left = w.free(p)
	}
	p.held += max(min(int64(w.Limit)/gateways-p.count(), left/gateways), 0)
}
