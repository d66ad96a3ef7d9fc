package local

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKafkaMetadata(t *testing.T) {
	answer := func(brokers int32, controller int32) []byte {
		var b []byte
		b = binary.BigEndian.AppendUint32(b, 1) // correlation id
		b = binary.BigEndian.AppendUint32(b, 0) // throttle time
		b = binary.BigEndian.AppendUint32(b, uint32(brokers))
		for range max(brokers, 0) {
			b = binary.BigEndian.AppendUint32(b, 1)
			b = append(b, 0, 4, 'h', 'o', 's', 't')
			b = binary.BigEndian.AppendUint32(b, 9092)
			b = append(b, 0xff, 0xff) // no rack
		}
		b = append(b, 0, 2, 'i', 'd')
		return binary.BigEndian.AppendUint32(b, uint32(controller))
	}
	for _, tt := range []struct {
		name       string
		answer     []byte
		brokers    int
		controller int32
		fails      bool
	}{
		{"a broker that leads", answer(1, 1), 1, 1, false},
		{"not registered yet", answer(0, -1), 0, -1, false},
		{"cut off", answer(1, 1)[:20], 0, 0, true},
		{"empty", nil, 0, 0, true},
	} {
		brokers, controller, err := kafkaMetadata(tt.answer)
		if brokers != tt.brokers || controller != tt.controller || (err != nil) != tt.fails {
			t.Errorf("%s: %d brokers, controller %d, %v", tt.name, brokers, controller, err)
		}
	}
}

func TestRedisAnswer(t *testing.T) {
	for _, tt := range []struct {
		wire, want, wantErr string
	}{
		{"+OK\r\n", "OK", ""},
		{":12\r\n", "12", ""},
		{"$5\r\na\r\nbc\r\n", "a\r\nbc", ""}, // bulk strings may hold line ends
		{"$0\r\n\r\n", "", ""},
		{"-ERR no\r\n", "", "it answered ERR no"},
		{"$-1\r\n", "", "unexpected length"},
		{"*1\r\n", "", "unexpected answer"},
		{"\r\n", "", "empty answer"},
		{"$5\r\nab", "", io.ErrUnexpectedEOF.Error()},
		{"", "", io.EOF.Error()},
	} {
		got, err := redisAnswer(bufio.NewReader(strings.NewReader(tt.wire)))
		if got != tt.want || (err == nil) != (tt.wantErr == "") || err != nil && !strings.Contains(err.Error(), tt.wantErr) {
			t.Errorf("redisAnswer(%q) = %q, %v; want %q, %q", tt.wire, got, err, tt.want, tt.wantErr)
		}
	}
}

func TestCertificates(t *testing.T) {
	ca := must[*CA](t)(NewCA())
	other := must[*CA](t)(NewCA())
	for _, tt := range []struct {
		name   string
		hosts  []string // of the server
		client *tls.Config
		asks   string
		ok     bool
	}{
		{"by address", nil, ca.ClientConfig(), "127.0.0.1", true},
		{"by name", nil, ca.ClientConfig(), "localhost", true},
		{"by a name of its own", []string{"push.example", "127.0.0.1"}, ca.ClientConfig(), "push.example", true},
		{"by another name", nil, ca.ClientConfig(), "example.com", false},
		{"another authority", nil, other.ClientConfig(), "127.0.0.1", false},
	} {
		config := must[*tls.Config](t)(ca.ServerConfig(tt.hosts...))
		// A real socket: on a net.Pipe a refusal waits for ever behind the
		// server's own write.
		listener := must[net.Listener](t)(tls.Listen("tcp", "127.0.0.1:0", config))
		served := make(chan struct{})
		go func() {
			defer close(served)
			if conn, err := listener.Accept(); err == nil {
				_ = conn.(*tls.Conn).Handshake() // what the client sees is looked at
				conn.Close()
			}
		}()
		client := tt.client.Clone()
		client.ServerName = tt.asks
		conn, err := tls.Dial("tcp", listener.Addr().String(), client)
		if err == nil {
			conn.Close()
		}
		<-served
		listener.Close()
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestCacheDir(t *testing.T) {
	t.Setenv(EnvCache, "")
	working := must[string](t)(os.Getwd())
	root := filepath.Dir(filepath.Dir(working))
	if got := must[string](t)(cacheDir()); got != filepath.Join(root, ".cache") {
		t.Errorf("cache is %s, want .cache in %s", got, root)
	}
	empty := t.TempDir()
	t.Setenv(EnvCache, empty)
	if got := must[string](t)(cacheDir()); got != empty {
		t.Errorf("cache is %s, want %s", got, empty)
	}
	t.Setenv("PUSHFLEET_REDISBLOOM", "")
	for _, start := range []func() (*Server, error){
		func() (*Server, error) { return StartKafka(t.Context(), KafkaOptions{}) },
		func() (*Server, error) { return StartRedis(t.Context(), RedisOptions{}) },
		func() (*Server, error) { return StartCassandra(t.Context(), CassandraOptions{}) },
	} {
		if s, err := start(); err == nil || !strings.Contains(err.Error(), "fetch.sh") {
			t.Errorf("without a cache: %v, %v; want an error that names fetch.sh", s, err)
		}
	}
}

func TestSharedAddresses(t *testing.T) {
	want := Addresses{Kafka: "127.0.0.1:1", Redis: "127.0.0.1:2", Cassandra: "127.0.0.1:3"}
	for _, name := range []string{EnvServers, EnvKafka, EnvRedis, EnvCassandra} {
		t.Setenv(name, "")
	}
	for _, assignment := range must[[]string](t)(want.Env()) {
		name, value, _ := strings.Cut(assignment, "=")
		if name == EnvCache {
			continue
		}
		if _, err := SharedAddresses(); err == nil {
			t.Errorf("without %s the environment was taken for a whole one", name)
		}
		t.Setenv(name, value)
	}
	if got := must[Addresses](t)(SharedAddresses()); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}
