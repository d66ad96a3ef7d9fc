package local

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports come from below the range that kernels hand to outgoing connections
// (32768 and up on Linux), so that a server that is down for a restart does
// not lose its port to somebody's connection.
const (
	lowestPort  = 17000
	highestPort = 31999
)

// freePorts finds n different ports of 127.0.0.1 that nobody listens on.
// Another process may still take one before the server does: starting is then
// tried again with others.
func freePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range 50 * n {
		port := lowestPort + rand.IntN(highestPort-lowestPort+1)
		listener, err := net.Listen("tcp4", hostPort(port))
		if err != nil {
			continue
		}
		// Held until all are found, so that they differ.
		defer listener.Close()
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("finding %d free ports in %d to %d: %w", n, lowestPort, highestPort, errors.ErrUnsupported)
}

// hostPort is the loopback address of a port.
func hostPort(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
