// Package configs reads a worker's configuration: one YAML file over the
// defaults, which are all written down in worker.yaml, and environment
// variables over both. An invalid configuration is refused at the start, with
// every problem at once, each with the path of its key.
//
// It reads YAML with go.yaml.in/yaml/v3's nodes and its own strict reader
// instead of a configuration library: such libraries merge sources through maps
// of any, where the line of a key, the difference between 10 and "10" and half
// of the unknown keys get lost. The environment takes a dozen lines more.
//
// It imports nothing of ours: the commands translate Config into the options
// of each package. No value from the file is repeated in an error, because a
// secret may have been pasted into the wrong place; passwords and keys are
// never in the file, only the paths of the files that hold them.
package configs
