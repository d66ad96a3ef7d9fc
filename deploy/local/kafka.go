//go:build unix

package local

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// KafkaOptions says how a Kafka broker is to run. The zero value is a plain one.
type KafkaOptions struct {
	// Dir is the data directory. When empty, one is made and Close removes it.
	Dir string
	// Heap is the greatest heap as java -Xmx takes it; "512m" when empty.
	Heap string
	// Brief is for a broker that lives for some minutes: see briefly.
	Brief bool
	// Access, when given, opens a second listener at SecureAddr that demands
	// TLS and SASL: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, all with this user.
	// Addr stays open without.
	Access *Access
	// Properties are set over those of server.properties.
	Properties map[string]string

	archiveTo string // where to write the archive of classes as it ends; empty = start with one
}

// briefly makes Java start with about half the CPU, and run slower at length: it
// compiles little, and collects garbage on one thread.
var briefly = []string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"}

// StartKafka starts one process that is broker and controller, and returns
// when it leads its cluster and has named itself in the metadata. ctx bounds
// the start, not the life of the server. It is set for tests: small session
// time-outs allowed, groups form without delay, topics are never made by
// asking for them, few partitions in the internal topics.
func StartKafka(ctx context.Context, o KafkaOptions) (*Server, error) {
	java, err := javaPath()
	if err != nil {
		return nil, fmt.Errorf("starting kafka: %w", err)
	}
	jars, err := cached(kafkaJars)
	if err != nil {
		return nil, fmt.Errorf("starting kafka: %w", err)
	}
	if o.Heap == "" {
		o.Heap = "512m"
	}
	classes, err := archived(java, jars)
	if err != nil {
		return nil, fmt.Errorf("starting kafka: %w", err)
	}
	if o.archiveTo != "" {
		classes = []string{"-XX:ArchiveClassesAtExit=" + o.archiveTo}
	}
	return launch(ctx, "kafka", o.Dir, 3, func(dir string, ports []int) (*Server, error) {
		files, err := kafkaFiles(dir, o, ports)
		if err != nil {
			return nil, err
		}
		if err := writeFiles(dir, files); err != nil {
			return nil, err
		}
		if err := kafkaFormat(ctx, java, jars, dir, o.Access); err != nil {
			return nil, err
		}
		s := &Server{addr: hostPort(ports[0])}
		if o.Access != nil {
			s.secure = hostPort(ports[2])
		}
		s.program = program{
			name: "kafka",
			command: func() *exec.Cmd {
				args := []string{"-Xmx" + o.Heap, "-XX:+ExitOnOutOfMemoryError",
					"-Dlog4j2.configurationFile=log4j2.properties", "-cp", filepath.Join(jars, "*")}
				if o.Brief {
					args = append(args, briefly...)
				}
				args = append(args, classes...)
				return exec.Command(java, append(args, "kafka.Kafka", "server.properties")...)
			},
			ready: func(ctx context.Context) error { return kafkaReady(ctx, s.addr) },
		}
		return s, nil
	})
}

// kafkaFormat gives an empty data directory its cluster id and SCRAM users; a
// formatted one is left alone.
func kafkaFormat(ctx context.Context, java, jars, dir string, access *Access) error {
	if _, err := os.Stat(filepath.Join(dir, "data", "meta.properties")); err == nil {
		return nil
	}
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return fmt.Errorf("formatting kafka's storage: %w", err)
	}
	classes, err := archived(java, jars)
	if err != nil {
		return fmt.Errorf("formatting kafka's storage: %w", err)
	}
	args := append(slices.Concat(briefly, classes),
		"-Xmx256m",
		"-Dlog4j2.configurationFile="+filepath.Join(dir, "log4j2.properties"),
		"-cp", filepath.Join(jars, "*"), "kafka.tools.StorageTool", "format",
		// An id must not begin with a dash, which would look like an option.
		"-t", "A"+base64.RawURLEncoding.EncodeToString(id)[1:],
		"-c", filepath.Join(dir, "server.properties"),
	)
	if access != nil {
		for _, mechanism := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512"} {
			args = append(args, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", mechanism, access.User, access.Password))
		}
	}
	if out, err := exec.CommandContext(ctx, java, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("formatting kafka's storage: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// kafkaFiles is the configuration of one broker; ports are those of clients,
// of the controller, and of clients that have Access.
func kafkaFiles(dir string, o KafkaOptions, ports []int) (map[string][]byte, error) {
	listeners := []string{"PLAINTEXT://" + hostPort(ports[0])}
	protocols := "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
	properties := map[string]string{}
	files := map[string][]byte{"log4j2.properties": []byte(kafkaLogging)}
	if o.Access != nil {
		listeners = append(listeners, "SECURE://"+hostPort(ports[2]))
		protocols += ",SECURE:SASL_SSL"
		certPEM, keyPEM, err := o.Access.CA.Issue()
		if err != nil {
			return nil, err
		}
		files["keystore.pem"] = append(keyPEM, certPEM...)
		maps.Copy(properties, kafkaSecurity(dir, o.Access))
	}
	maps.Copy(properties, map[string]string{
		"process.roles":                  "broker,controller",
		"node.id":                        "1",
		"controller.quorum.voters":       "1@" + hostPort(ports[1]),
		"listeners":                      strings.Join(append(listeners, "CONTROLLER://"+hostPort(ports[1])), ","),
		"advertised.listeners":           strings.Join(listeners, ","),
		"controller.listener.names":      "CONTROLLER",
		"listener.security.protocol.map": protocols,
		"inter.broker.listener.name":     "PLAINTEXT",
		"log.dirs":                       filepath.Join(dir, "data"),
		"auto.create.topics.enable":      "false",
		// A test may send records over the 1 MiB that topics allow by default.
		"message.max.bytes": "4194304",
		// Crash cells must not wait for the session time-outs of production.
		"group.min.session.timeout.ms":     "500",
		"group.initial.rebalance.delay.ms": "0",
		// After a kill the broker may register again when its old session is over.
		"broker.session.timeout.ms":                        "3000",
		"broker.heartbeat.interval.ms":                     "500",
		"offsets.topic.replication.factor":                 "1",
		"offsets.topic.num.partitions":                     "4",
		"transaction.state.log.replication.factor":         "1",
		"transaction.state.log.min.isr":                    "1",
		"transaction.state.log.num.partitions":             "2",
		"share.coordinator.state.topic.replication.factor": "1",
		"share.coordinator.state.topic.min.isr":            "1",
		"share.coordinator.state.topic.num.partitions":     "1",
		// The default of 128 MB is more than the rest of the heap needs.
		"log.cleaner.dedupe.buffer.size": "8388608",
	})
	maps.Copy(properties, o.Properties)
	var b bytes.Buffer
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		fmt.Fprintf(&b, "%s=%s\n", key, properties[key])
	}
	files["server.properties"] = b.Bytes()
	return files, nil
}

// kafkaSecurity is what the listener SECURE demands. SCRAM users are in the
// metadata log since the format; those of PLAIN are in the configuration.
func kafkaSecurity(dir string, access *Access) map[string]string {
	const listener, login = "listener.name.secure.", "org.apache.kafka.common.security."
	scram := login + "scram.ScramLoginModule required;"
	return map[string]string{
		"sasl.enabled.mechanisms":                          "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
		listener + "ssl.keystore.type":                     "PEM",
		listener + "ssl.keystore.location":                 filepath.Join(dir, "keystore.pem"),
		listener + "scram-sha-256.sasl.jaas.config":        scram,
		listener + "scram-sha-512.sasl.jaas.config":        scram,
		listener + "plain.sasl.jaas.config":                fmt.Sprintf("%splain.PlainLoginModule required user_%s=%q;", login, access.User, access.Password),
		listener + "connections.max.reauth.ms":             "0",
		listener + "ssl.endpoint.identification.algorithm": "",
	}
}

const kafkaLogging = `rootLogger.level=WARN
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d{ISO8601} %p %c{1}: %m%n
`
