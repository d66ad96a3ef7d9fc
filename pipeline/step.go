package pipeline

// Step is what can fail and is done again: a label of push_step_failures_total,
// the name of a stall, and a word in the log. Each stage is one under its own
// name; these are the pipeline's own. Alerts are written for them.
type Step string

// The steps, in the order of the way.
const (
	StepConfirm  Step = "confirm"   // reading the status rows of what came again
	StepIntents  Step = "intents"   // at_most_once: the row before the send
	StepRecheck  Step = "recheck"   // reading anew what waited for long
	StepStatus   Step = "status"    // writing the rows of what has ended
	StepHandOver Step = "hand-over" // producing what does not end here
	StepFilter   Step = "filter"    // adding finished ids to the dedupe filter
	StepLatest   Step = "latest"    // noting the newest of a collapse key
	StepCommit   Step = "commit"    // committing offsets
)

// steps are all of them.
var steps = [...]Step{StepConfirm, StepIntents, StepRecheck, StepStatus, StepHandOver, StepFilter, StepLatest, StepCommit}
