//go:build unix

package local

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// archive is where Kafka's classes lie as the virtual machine has them in memory
// (JEP 350), so that a start does not read and verify them again: that is half of
// what it costs. Cassandra would save less than its archive takes to make. Java
// passes over an archive that does not fit its build or the jars; that of another
// Java has another name here, so that it is made anew.
func archive(java, jars string) (string, error) {
	path, err := filepath.EvalSymlinks(java)
	if err != nil {
		return "", fmt.Errorf("looking for Java: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("looking for Java: %w", err)
	}
	build := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", path, info.Size(), info.ModTime().UnixNano()))
	return filepath.Join(filepath.Dir(jars), "classes", fmt.Sprintf("%s-%x.jsa", filepath.Base(jars), build[:8])), nil
}

// archived are the options to start with the archive; none where it is not made.
func archived(java, jars string) ([]string, error) {
	path, err := archive(java, jars)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("looking for the archive of classes: %w", err)
	}
	return []string{"-XX:SharedArchiveFile=" + path}, nil
}

// ArchiveKafka makes the archive of classes with which every Kafka starts from then
// on, unless it is there: it starts one for that. The archive lies in the cache, and
// two may make it at once.
func ArchiveKafka(ctx context.Context) error {
	if err := archiveKafka(ctx); err != nil {
		return fmt.Errorf("making the archive of kafka's classes: %w", err)
	}
	return nil
}

func archiveKafka(ctx context.Context) (err error) {
	java, err := javaPath()
	if err != nil {
		return err
	}
	jars, err := cached(kafkaJars)
	if err != nil {
		return err
	}
	path, err := archive(java, jars)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	// Written somewhere else, so that nobody takes half of it for the whole.
	dir, err := os.MkdirTemp(filepath.Dir(path), ".work-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	unfinished := filepath.Join(dir, filepath.Base(path))
	s, err := StartKafka(ctx, KafkaOptions{Brief: true, archiveTo: unfinished})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	// Not Stop, which waits for a shorter time: the archive is written at the end.
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case <-s.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := os.Rename(unfinished, path); err != nil {
		return fmt.Errorf("%w%s", err, s.Tail())
	}
	return nil
}
