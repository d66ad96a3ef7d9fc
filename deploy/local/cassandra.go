//go:build unix

package local

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"text/template"
	"time"
)

// CassandraOptions says how a Cassandra node is to run. The zero value is a
// plain one.
type CassandraOptions struct {
	// Dir is the data directory. When empty, one is made and Close removes it.
	Dir string
	// Heap is the heap as java -Xms and -Xmx take it; "1g" when empty, and
	// "512m" is enough for a node that takes little load. Add about half a
	// gigabyte for what it uses besides.
	Heap string
	// Brief is for a node that lives for some minutes: see briefly.
	Brief bool
	// Access, when given, is demanded of every client. The user is made a
	// superuser, and the one that Cassandra begins with keeps its name and
	// password "cassandra".
	Access *Access
	// Durable writes to disk before a write is acknowledged, so that Kill loses
	// nothing that was; otherwise the last 10 s may be lost. It is slower. The
	// commit log is compressed then, which makes it written and not mapped into
	// memory: so a full disk fails the next write and not only that of the next
	// segment.
	Durable bool
}

// StartCassandra starts a node that is a cluster of its own, and returns when
// it answers a query. ctx bounds the start, not the life of the server.
func StartCassandra(ctx context.Context, o CassandraOptions) (*Server, error) {
	java, err := javaPath()
	if err != nil {
		return nil, fmt.Errorf("starting cassandra: %w", err)
	}
	jars, err := cached(cassandraJars)
	if err != nil {
		return nil, fmt.Errorf("starting cassandra: %w", err)
	}
	if o.Heap == "" {
		o.Heap = "1g"
	}
	s, err := launch(ctx, "cassandra", o.Dir, 2, func(dir string, ports []int) (*Server, error) {
		files, err := cassandraFiles(dir, o, ports)
		if err != nil {
			return nil, err
		}
		if err := writeFiles(dir, files); err != nil {
			return nil, err
		}
		s := &Server{addr: hostPort(ports[1])}
		s.program = program{
			name:    "cassandra",
			command: func() *exec.Cmd { return exec.Command(java, cassandraArgs(dir, jars, o)...) },
			slack:   cassandraSlack,
			ready: func(ctx context.Context) error {
				return cqlDo(ctx, s.addr, cassandraLogin(o.Access), "SELECT release_version FROM system.local")
			},
		}
		return s, nil
	})
	if err != nil || o.Access == nil {
		return s, err
	}
	// A login that the role manager has just made takes a moment to be known.
	create := fmt.Sprintf("CREATE ROLE IF NOT EXISTS %s WITH PASSWORD = %s AND LOGIN = true AND SUPERUSER = true",
		cqlName(o.Access.User), cqlText(o.Access.Password))
	if err := cqlDo(ctx, s.addr, cassandraLogin(o.Access), create); err != nil {
		return nil, fmt.Errorf("starting cassandra: making its user: %w%s", err, closeAfter(s))
	}
	return s, nil
}

// cassandraSlack keeps Cassandra from waking up for nothing. A thread of its pools that has
// nothing to do looks for something again after 10 us or a little more (SEPWorker.doWaitSpin
// in its source), which is some 16,000 times a second under load: work for its core, and
// whatever shares that core is interrupted each time.
const cassandraSlack = 500 * time.Microsecond

// closeAfter closes a server after a failure and returns what to add to the
// error: the end of its log, which is about to be removed.
func closeAfter(s *Server) string {
	tail := s.Tail()
	if err := s.Close(); err != nil {
		return tail + "; closing it: " + err.Error()
	}
	return tail
}

// cassandraLogin is the user that Cassandra begins with, reached as access
// demands.
func cassandraLogin(access *Access) *Access {
	if access == nil {
		return nil
	}
	return &Access{CA: access.CA, User: "cassandra", Password: "cassandra"}
}

// cassandraFiles is the configuration of one node; ports are those of other
// nodes and of clients.
func cassandraFiles(dir string, o CassandraOptions, ports []int) (map[string][]byte, error) {
	files := map[string][]byte{"logback.xml": []byte(cassandraLogging)}
	if o.Access != nil {
		certPEM, keyPEM, err := o.Access.CA.Issue()
		if err != nil {
			return nil, err
		}
		files["keystore.pem"] = append(keyPEM, certPEM...)
	}
	var yaml bytes.Buffer
	if err := cassandraYAML.Execute(&yaml, map[string]any{
		"Dir": dir, "StoragePort": ports[0], "NativePort": ports[1], "Secure": o.Access != nil, "Durable": o.Durable,
	}); err != nil {
		return nil, fmt.Errorf("writing cassandra.yaml: %w", err)
	}
	files["cassandra.yaml"] = yaml.Bytes()
	return files, nil
}

// cassandraOpens are the parts of the Java 17 run time that Cassandra reaches
// into; it does not start without.
var cassandraOpens = map[string][]string{
	"java.base": {
		"java.lang", "java.lang.module", "java.lang.ref", "java.lang.reflect", "java.io", "java.math", "java.net", "java.nio",
		"java.util", "java.util.concurrent", "java.util.concurrent.atomic",
		"jdk.internal.loader", "jdk.internal.ref", "jdk.internal.reflect", "jdk.internal.math", "jdk.internal.module",
		"jdk.internal.util.jar", "sun.nio.ch",
	},
	"java.management":    {"com.sun.jmx.remote.security"},
	"java.rmi":           {"sun.rmi.registry", "sun.rmi.server", "sun.rmi.transport", "sun.rmi.transport.tcp"},
	"java.sql":           {"java.sql"},
	"jdk.management":     {"com.sun.management.internal"},
	"jdk.management.jfr": {"jdk.management.jfr"},
	"jdk.jfr":            {"jdk.jfr"},
}

func cassandraArgs(dir, jars string, o CassandraOptions) []string {
	var args []string
	if o.Brief {
		args = append(args, briefly...)
	}
	for module, packages := range cassandraOpens {
		for _, name := range packages {
			args = append(args,
				"--add-opens", module+"/"+name+"=ALL-UNNAMED",
				"--add-exports", module+"/"+name+"=ALL-UNNAMED")
		}
	}
	return append(args,
		"-Xms"+o.Heap, "-Xmx"+o.Heap, "-XX:+ExitOnOutOfMemoryError",
		"-Djdk.attach.allowAttachSelf=true",
		// One node has nobody to gossip with and no ring to wait for.
		"-Dcassandra.skip_wait_for_gossip_to_settle=0",
		"-Dcassandra.ring_delay_ms=1",
		"-Dcassandra.superuser_setup_delay_ms=0",
		"-Dcassandra.config=file://"+filepath.Join(dir, "cassandra.yaml"),
		"-Dcassandra.storagedir="+dir,
		"-Dcassandra-foreground=yes",
		// The directory comes first for its logback.xml: without one the log
		// is at DEBUG, and slows the node down.
		"-cp", dir+":"+filepath.Join(jars, "*"),
		"org.apache.cassandra.service.CassandraDaemon")
}

var cassandraYAML = template.Must(template.New("cassandra.yaml").Parse(`cluster_name: local
num_tokens: 4
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
auto_bootstrap: false
auto_snapshot: false
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: "127.0.0.1:{{.StoragePort}}"
listen_address: 127.0.0.1
rpc_address: 127.0.0.1
storage_port: {{.StoragePort}}
native_transport_port: {{.NativePort}}
start_native_transport: true
endpoint_snitch: SimpleSnitch
data_file_directories: ["{{.Dir}}/data"]
commitlog_directory: "{{.Dir}}/commitlog"
saved_caches_directory: "{{.Dir}}/saved_caches"
hints_directory: "{{.Dir}}/hints"
cdc_raw_directory: "{{.Dir}}/cdc_raw"
disk_failure_policy: stop
commit_failure_policy: stop
{{- if .Durable}}
commitlog_sync: batch
commitlog_compression:
  - class_name: LZ4Compressor
{{- else}}
commitlog_sync: periodic
commitlog_sync_period: 10000ms
{{- end}}
commitlog_disk_access_mode: legacy
commitlog_segment_size: 32MiB
commitlog_total_space: 512MiB
file_cache_size: 64MiB
networking_cache_size: 32MiB
key_cache_size: 8MiB
counter_cache_size: 0MiB
concurrent_reads: 16
concurrent_writes: 16
concurrent_compactors: 1
# Rows wait for their flush outside the heap: on it, they made a write cost a third
# more once the heap was full (bench/README.md).
memtable_allocation_type: offheap_objects
{{- if .Secure}}
authenticator: PasswordAuthenticator
authorizer: CassandraAuthorizer
role_manager: CassandraRoleManager
client_encryption_options:
  enabled: true
  optional: false
  require_client_auth: false
  ssl_context_factory:
    class_name: org.apache.cassandra.security.PEMBasedSslContextFactory
  keystore: "{{.Dir}}/keystore.pem"
{{- end}}
`))

const cassandraLogging = `<configuration>
  <appender name="stdout" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{ISO8601} %level %logger{0}: %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="stdout"/></root>
</configuration>
`
