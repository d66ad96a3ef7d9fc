//go:build unix

package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// launch starts a server for the first time. Between the choice of a free port
// and the server's listening on it somebody else may take it; then everything
// is tried again with other ports. build writes the configuration for the
// ports into dir and returns the server.
func launch(ctx context.Context, name, dir string, ports int, build func(dir string, ports []int) (*Server, error)) (*Server, error) {
	var failures error
	for range 3 {
		s, err := launchOnce(ctx, name, dir, ports, build)
		if err == nil {
			return s, nil
		}
		failures = errors.Join(failures, err)
		if !portTaken(err) {
			break
		}
	}
	return nil, failures
}

func launchOnce(ctx context.Context, name, dir string, n int, build func(dir string, ports []int) (*Server, error)) (*Server, error) {
	ports, err := freePorts(n)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	ownDir := dir == ""
	if ownDir {
		dir, err = os.MkdirTemp("", "pushfleet-"+name+"-")
	} else {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("making the data directory of %s: %w", name, err)
	}
	s, err := build(dir, ports)
	if err == nil {
		s.dir, s.ownDir = dir, ownDir
		err = s.start(ctx)
	}
	if err != nil && ownDir {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, err
}

// portTaken says whether a start failed because a port was taken: the servers'
// own words, which the end of their log carries into the error.
func portTaken(err error) bool {
	text := err.Error()
	return strings.Contains(text, "Address already in use") || strings.Contains(text, "BindException")
}

// writeFiles writes configuration files into dir.
func writeFiles(dir string, files map[string][]byte) error {
	for name, content := range files {
		// Keys and passwords are among them.
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return fmt.Errorf("writing configuration: %w", err)
		}
	}
	return nil
}
