//go:build unix

package local

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// RedisOptions says how a Redis is to run. The zero value is a plain one
// without persistence.
type RedisOptions struct {
	// Dir is the data directory. When empty, one is made and Close removes it.
	Dir string
	// Access, when given, is demanded of every client.
	Access *Access
	// AppendOnly keeps the data over Kill and Restart: what was acknowledged
	// survives the death of the process, though not that of the machine.
	AppendOnly bool

	clusterBus bool
}

// StartRedis starts a Redis with the Bloom module and returns when it answers.
// ctx bounds the start, not the life of the server.
func StartRedis(ctx context.Context, o RedisOptions) (*Server, error) {
	module, err := bloomModule()
	if err != nil {
		return nil, fmt.Errorf("starting redis: %w", err)
	}
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("starting redis: %w; run deploy/local/fetch.sh", err)
	}
	return launch(ctx, "redis", o.Dir, 2, func(dir string, ports []int) (*Server, error) {
		files, err := redisFiles(o, module, ports)
		if err != nil {
			return nil, err
		}
		if err := writeFiles(dir, files); err != nil {
			return nil, err
		}
		s := &Server{addr: hostPort(ports[0]), busPort: ports[1]}
		s.program = program{
			name: "redis",
			command: func() *exec.Cmd {
				cmd := exec.Command(path, "redis.conf")
				cmd.Env = append(hugePages(), os.Environ()...)
				return cmd
			},
			ready: func(ctx context.Context) error {
				_, err := redisDo(ctx, s.addr, o.Access, "PING")
				return err
			},
			wipe: func(ctx context.Context) error {
				_, err := redisWithin(ctx, wipeTimeout, s.addr, o.Access, "FLUSHALL")
				return err
			},
		}
		return s, nil
	})
}

// hugePages has jemalloc ask the kernel for pages of 2 MiB (opt.thp in its manual): a Redis
// of many keys spends a good part of its time on finding out where pages of 4 KiB are. While
// a fork writes (for a new replica, or an append-only file anew), what changes is copied in
// such large pieces; most here never fork. The first name is of the system's jemalloc, the
// second of the one that Redis brings. Whoever starts us with one of them set has it so.
func hugePages() []string { return []string{"MALLOC_CONF=thp:always", "JE_MALLOC_CONF=thp:always"} }

// redisFiles is the configuration of one Redis; ports are those of clients and
// of the cluster bus.
func redisFiles(o RedisOptions, module string, ports []int) (map[string][]byte, error) {
	files := map[string][]byte{}
	var conf bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&conf, format+"\n", args...) }
	line("bind 127.0.0.1")
	line("save \"\"")
	line("dir .")
	line("loadmodule %s", module)
	if o.AppendOnly {
		line("appendonly yes")
		// By everysec, a write is put off while the disk is at the fsync of the
		// one before, and is acknowledged all the same. By no, it is with the
		// kernel before the answer is out.
		line("appendfsync no")
	}
	if o.clusterBus {
		line("cluster-enabled yes")
		line("cluster-config-file nodes.conf")
		line("cluster-port %d", ports[1])
		line("cluster-node-timeout 5000")
	}
	if o.Access == nil {
		line("port %d", ports[0])
		files["redis.conf"] = conf.Bytes()
		return files, nil
	}
	certPEM, keyPEM, err := o.Access.CA.Issue()
	if err != nil {
		return nil, err
	}
	files["ca.pem"], files["server.pem"], files["server.key"] = o.Access.CA.PEM(), certPEM, keyPEM
	line("port 0")
	line("tls-port %d", ports[0])
	line("tls-cert-file server.pem")
	line("tls-key-file server.key")
	line("tls-ca-cert-file ca.pem")
	line("tls-auth-clients no")
	if o.clusterBus {
		line("tls-cluster yes")
	}
	line("user default off")
	// As a hash the password needs no quoting, and stays out of the log.
	line("user %s on #%x ~* &* +@all", o.Access.User, sha256.Sum256([]byte(o.Access.Password)))
	files["redis.conf"] = conf.Bytes()
	return files, nil
}

// redisDo connects, authenticates and asks one thing.
func redisDo(ctx context.Context, addr string, access *Access, args ...string) (string, error) {
	return redisWithin(ctx, answerTimeout, addr, access, args...)
}

// redisWithin is redisDo of what takes longer.
func redisWithin(ctx context.Context, within time.Duration, addr string, access *Access, args ...string) (string, error) {
	var config *tls.Config
	if access != nil {
		config = access.CA.ClientConfig()
	}
	conn, err := dial(ctx, within, addr, config)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if access != nil {
		if _, err := redisAsk(conn, "AUTH", access.User, access.Password); err != nil {
			return "", err
		}
	}
	return redisAsk(conn, args...)
}
