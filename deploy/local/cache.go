package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// The names under which fetch.sh puts things into the cache.
const (
	kafkaJars     = "kafka-4.3.1"
	cassandraJars = "cassandra-5.0.8"
	redisBloom    = "redisbloom-2.8.2"
	generator     = "openapi-python-client"
)

// EnvCache is the environment variable that names the cache directory.
const EnvCache = "PUSHFLEET_CACHE"

// cacheDir is where fetch.sh has put the servers: $PUSHFLEET_CACHE, else
// .cache beside the go.mod above the working directory.
func cacheDir() (string, error) {
	if dir := os.Getenv(EnvCache); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the cache of servers: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, ".cache"), nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("finding the cache of servers: no go.mod above the working directory; set %s", EnvCache)
		}
		dir = parent
	}
}

// cached is the path of something that fetch.sh has checked and put into the
// cache.
func cached(name string) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "servers", name)
	if _, err := os.Stat(filepath.Join(dir, ".checked")); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s is not in %s: run deploy/local/fetch.sh", name, cache)
	} else if err != nil {
		return "", fmt.Errorf("looking for %s: %w", name, err)
	}
	return dir, nil
}

// javaPath is the java to run: that of JAVA_HOME, else the one on the PATH.
func javaPath() (string, error) {
	if home := os.Getenv("JAVA_HOME"); home != "" {
		return filepath.Join(home, "bin", "java"), nil
	}
	path, err := exec.LookPath("java")
	if err != nil {
		return "", fmt.Errorf("looking for Java 17: %w", err)
	}
	return path, nil
}

// bloomModule is the path of the Bloom module: $PUSHFLEET_REDISBLOOM, else the
// one that fetch.sh fetched.
func bloomModule() (string, error) {
	if path := os.Getenv("PUSHFLEET_REDISBLOOM"); path != "" {
		return path, nil
	}
	dir, err := cached(redisBloom)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "redisbloom.so"), nil
}

// ClientGenerator is where the Python modules are of which openapi_python_client makes
// clients, and by which these work.
func ClientGenerator() (dir string, err error) { return cached(generator) }
