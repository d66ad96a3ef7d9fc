//go:build unix

package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Programs are the paths of the built binaries.
type Programs struct {
	Worker string // pushworker
	// Args are arguments of Worker before those of pushworker: for another program
	// that can be one.
	Args    []string
	Ctl     string // pushctl; needed by Ctl and StartDashboard only
	Gateway string // pushgateway; needed by StartGateway only
}

// Build compiles commands of the module that the working directory is in
// ("pushworker", "pushctl", "pushgateway") into dir. With race they find data races, which
// end them with status 66, and are several times slower.
func Build(ctx context.Context, dir string, race bool, commands ...string) (Programs, error) {
	return BuildTagged(ctx, dir, "", race, commands...)
}

// BuildTagged is Build with a build tag, unless it is empty.
func BuildTagged(ctx context.Context, dir, tag string, race bool, commands ...string) (Programs, error) {
	root, err := moduleRoot()
	if err != nil {
		return Programs{}, err
	}
	return buildAt(ctx, root, dir, tag, race, commands...)
}

// NoRevisionError says that the repository has no such revision: it is a shallow
// clone, or no clone at all.
type NoRevisionError struct {
	Revision string
	Err      error // of git
}

// Error implements error.
func (e *NoRevisionError) Error() string {
	return fmt.Sprintf("the repository has no revision %[1]s (git fetch --unshallow, or git fetch origin %[1]s): %[2]v", e.Revision, e.Err)
}

// Unwrap returns what git said.
func (e *NoRevisionError) Unwrap() error { return e.Err }

// BuildRevision is Build of an earlier revision of the module, whose source is put
// into source, an empty directory. If the repository does not have the revision, the
// error is a NoRevisionError.
func BuildRevision(ctx context.Context, revision, source, dir string, commands ...string) (Programs, error) {
	root, err := moduleRoot()
	if err != nil {
		return Programs{}, err
	}
	// An index of its own: the one of the repository stays as it is.
	index := "GIT_INDEX_FILE=" + filepath.Join(source, ".index")
	git := func(args ...string) error {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir, cmd.Env = root, append(os.Environ(), index)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(out))
		}
		return nil
	}
	if err := git("cat-file", "-e", revision+"^{commit}"); err != nil {
		return Programs{}, &NoRevisionError{revision, err}
	}
	if err := errors.Join(git("read-tree", revision), git("checkout-index", "--all", "--prefix="+source+string(filepath.Separator))); err != nil {
		return Programs{}, err
	}
	return buildAt(ctx, source, dir, "", false, commands...)
}

// buildAt builds commands of the module at root.
func buildAt(ctx context.Context, root, dir, tag string, race bool, commands ...string) (Programs, error) {
	args := []string{"build", "-o", dir + string(filepath.Separator)}
	if race {
		args = append(args, "-race")
	}
	if tag != "" {
		args = append(args, "-tags", tag)
	}
	for _, name := range commands {
		args = append(args, "./cmd/"+name)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return Programs{}, fmt.Errorf("building %v: %w: %s", commands, err, bytes.TrimSpace(out))
	}
	return Programs{Worker: filepath.Join(dir, "pushworker"), Ctl: filepath.Join(dir, "pushctl"), Gateway: filepath.Join(dir, "pushgateway")}, nil
}

func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("looking for go.mod: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("looking for go.mod: there is none above the working directory")
		}
		dir = parent
	}
}
