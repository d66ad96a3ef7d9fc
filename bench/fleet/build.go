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
	Ctl    string // pushctl; needed by Ctl only
}

// Build compiles commands of the module that the working directory is in
// ("pushworker", "pushctl") into dir. With race they find data races, which
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
	return Programs{Worker: filepath.Join(dir, "pushworker"), Ctl: filepath.Join(dir, "pushctl")}, nil
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
