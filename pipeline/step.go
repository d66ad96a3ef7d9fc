package pipeline

// Step is something that can fail and is repeated. It is a label of
// push_step_failures_total, the name of a stall, and a word in logs and alerts. Each
// stage is a step under its own name; these are the pipeline's own.
type Step string

// The steps, in the order of the way.
const (
	StepConfirm  Step = "confirm"   // reading the status rows of what came again
	StepIntents  Step = "intents"   // at_most_once: the row before the send
	StepRecheck  Step = "recheck"   // reading again what a long wait has made old
	StepStatus   Step = "status"    // writing the rows of what has ended
	StepHandOver Step = "hand-over" // producing what does not end here
	StepFilter   Step = "filter"    // adding finished ids to the dedupe filter
	StepLatest   Step = "latest"    // noting the newest of a collapse key
	StepCommit   Step = "commit"    // committing offsets
)

// steps are all of them.
var steps = [...]Step{StepConfirm, StepIntents, StepRecheck, StepStatus, StepHandOver, StepFilter, StepLatest, StepCommit}
