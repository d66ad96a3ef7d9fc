package local

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// redisAsk sends one command and reads one answer that is a simple string, a
// number or a bulk string: as much of the protocol as starting a server needs.
// Errors never carry the arguments, a password may be among them.
func redisAsk(conn net.Conn, args ...string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(conn, b.String()); err != nil {
		return "", fmt.Errorf("asking redis %s: %w", args[0], err)
	}
	answer, err := redisAnswer(bufio.NewReader(conn))
	if err != nil {
		return "", fmt.Errorf("asking redis %s: %w", args[0], err)
	}
	return answer, nil
}

func redisAnswer(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return "", fmt.Errorf("empty answer")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+', ':':
		return rest, nil
	case '-':
		return "", fmt.Errorf("it answered %s", rest)
	case '$':
		size, err := strconv.Atoi(rest)
		if err != nil || size < 0 || size > 1<<20 {
			return "", fmt.Errorf("unexpected length %q", rest)
		}
		bulk := make([]byte, size+2)
		if _, err := io.ReadFull(r, bulk); err != nil {
			return "", err
		}
		return string(bulk[:size]), nil
	default:
		return "", fmt.Errorf("unexpected answer of kind %q", kind)
	}
}
