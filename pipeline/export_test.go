package pipeline

// Options lets a test change a collaborator of a Pipeline that is not running.
func (p *Pipeline) Options() *Options { return &p.opt }
