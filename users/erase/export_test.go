package erase

// Any reports whether there is anything.
func (r *Remains) Any() bool {
	return r.Devices > 0 || r.Others > 0 || r.Preferences || r.Profile || r.Limits || r.Record || r.Tokens > 0
}
