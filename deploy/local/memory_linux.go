package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrNoMemoryGroup says that this machine does not let us bound the memory of
// processes: that takes root, or a cgroup that was delegated to us.
var ErrNoMemoryGroup = errors.New("no memory cgroup can be made here")

// MemoryGroup is a control group whose processes may use so much memory
// together: the kernel kills one that needs more with SIGKILL. What it shares
// with others, as the pages of its program, counts for who needed it first.
type MemoryGroup struct {
	dir   string
	files memoryFiles
}

// memoryFiles are the names of what is needed, in the two versions of the
// kernel's interface (Documentation/admin-guide/cgroup-v1/memory.rst and
// cgroup-v2.rst).
type memoryFiles struct {
	root, limit, used, events string
}

var memoryVersions = []memoryFiles{
	{"/sys/fs/cgroup", "memory.max", "memory.current", "memory.events"},
	{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control"},
}

// NewMemoryGroup makes a group without a limit. Close removes it.
func NewMemoryGroup() (*MemoryGroup, error) {
	var errs []error
	for _, files := range memoryVersions {
		dir, err := os.MkdirTemp(files.root, "pushfleet-")
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if _, err = os.Stat(filepath.Join(dir, files.limit)); err == nil {
			return &MemoryGroup{dir: dir, files: files}, nil
		}
		errs = append(errs, err, os.Remove(dir))
	}
	return nil, fmt.Errorf("%w: %w", ErrNoMemoryGroup, errors.Join(errs...))
}

// Entry is the file that a process writes its id into to be in the group with
// all that it will allocate and start.
func (g *MemoryGroup) Entry() string { return filepath.Join(g.dir, "cgroup.procs") }

// Limit bounds the group's memory to so many bytes.
func (g *MemoryGroup) Limit(bytes int64) error {
	if err := os.WriteFile(filepath.Join(g.dir, g.files.limit), []byte(strconv.FormatInt(bytes, 10)), 0); err != nil {
		return fmt.Errorf("limiting memory: %w", err)
	}
	return nil
}

// Used is how many bytes the group has now.
func (g *MemoryGroup) Used() (int64, error) {
	text, err := os.ReadFile(filepath.Join(g.dir, g.files.used))
	if err != nil {
		return 0, fmt.Errorf("reading how much memory is used: %w", err)
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// Kills is how many processes the kernel has killed because the group was at
// its limit.
func (g *MemoryGroup) Kills() (int, error) {
	text, err := os.ReadFile(filepath.Join(g.dir, g.files.events))
	if err != nil {
		return 0, fmt.Errorf("reading how many were killed: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
			return strconv.Atoi(strings.TrimSpace(n))
		}
	}
	return 0, fmt.Errorf("%s of this kernel does not count kills", g.files.events)
}

// Close removes the group. All its processes must have ended.
func (g *MemoryGroup) Close() error {
	if err := os.Remove(g.dir); err != nil {
		return fmt.Errorf("removing a memory group: %w", err)
	}
	return nil
}
