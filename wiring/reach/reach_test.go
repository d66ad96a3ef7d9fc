package reach

import (
	"errors"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/configs"
)

// What could not be opened is tried again when it is needed again, and what is open is not
// opened twice: a dashboard asks for days.
func TestServersAreOpenedOnce(t *testing.T) {
	var o once[int]
	tries := 0
	open := func() (int, error) {
		if tries++; tries == 1 {
			return 0, errors.New("away")
		}
		return tries, nil
	}
	if _, err := o.get(open); err == nil {
		t.Error("what is away is open")
	}
	for range 2 {
		if got, err := o.get(open); got != 2 || err != nil {
			t.Errorf("opened as %d, %v; want the second try", got, err)
		}
	}
}

// Where rules of devices count in Redis there is no log of devices, and nothing to reach.
func TestNoDeviceLog(t *testing.T) {
	s := New(configs.Default(), Options{ClientID: "test", Patience: time.Second})
	defer s.Close()
	if log, err := s.DeviceLog(t.Context()); log != nil || err != nil {
		t.Errorf("a log of devices: %v, %v", log, err)
	}
}

// A file that the configuration names and nobody can read is its fault, not a server's.
func TestFilesThatCannotBeRead(t *testing.T) {
	c := configs.Default()
	c.Kafka.SASL = configs.SASL{Mechanism: "PLAIN", Username: "u", PasswordFile: "none"}
	c.Redis.PasswordFile, c.Cassandra.PasswordFile = "none", "none"
	s := New(c, Options{ClientID: "test", Patience: time.Second})
	defer s.Close()
	_, kafka := s.Cluster()
	_, redis := s.Redis(t.Context())
	_, cassandra := s.Tables(t.Context())
	for _, err := range []error{kafka, redis, cassandra} {
		if _, is := errors.AsType[*ConfigError](err); !is {
			t.Errorf("%v, want a ConfigError", err)
		}
	}
}
