package local

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
)

// Opcodes of Cassandra's native protocol, version 4.
const (
	cqlError        = 0x00
	cqlStartup      = 0x01
	cqlReady        = 0x02
	cqlAuthenticate = 0x03
	cqlQuery        = 0x07
	cqlResult       = 0x08
	cqlAuthAnswer   = 0x0f
	cqlAuthSuccess  = 0x10
)

// cqlDo connects, logs in where access says so, and runs one statement whose
// rows do not matter.
func cqlDo(ctx context.Context, addr string, access *Access, statement string) error {
	var config *tls.Config
	if access != nil {
		config = access.CA.ClientConfig()
	}
	conn, err := dial(ctx, answerTimeout, addr, config)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := cqlLogin(conn, access); err != nil {
		return fmt.Errorf("logging in to cassandra: %w", err)
	}
	body := binary.BigEndian.AppendUint32(nil, uint32(len(statement)))
	body = append(body, statement...)
	body = append(body, 0, 1, 0) // consistency ONE, no flags
	opcode, _, err := cqlAsk(conn, cqlQuery, body)
	if err != nil {
		return fmt.Errorf("asking cassandra: %w", err)
	}
	if opcode != cqlResult {
		return fmt.Errorf("asking cassandra: unexpected answer %#x", opcode)
	}
	return nil
}

func cqlLogin(conn net.Conn, access *Access) error {
	body := []byte{0, 1} // a map of one
	for _, text := range []string{"CQL_VERSION", "3.0.0"} {
		body = binary.BigEndian.AppendUint16(body, uint16(len(text)))
		body = append(body, text...)
	}
	opcode, _, err := cqlAsk(conn, cqlStartup, body)
	switch {
	case err != nil:
		return err
	case opcode == cqlReady:
		return nil
	case opcode != cqlAuthenticate:
		return fmt.Errorf("unexpected answer %#x", opcode)
	case access == nil:
		return errors.New("it demands a password")
	}
	login := "\x00" + access.User + "\x00" + access.Password
	body = binary.BigEndian.AppendUint32(nil, uint32(len(login)))
	if opcode, _, err = cqlAsk(conn, cqlAuthAnswer, append(body, login...)); err != nil {
		return err
	}
	if opcode != cqlAuthSuccess {
		return fmt.Errorf("unexpected answer %#x to the password", opcode)
	}
	return nil
}

// cqlAsk sends one frame and reads one. An error frame becomes an error.
func cqlAsk(conn net.Conn, opcode byte, body []byte) (byte, []byte, error) {
	frame := []byte{0x04, 0, 0, 0, opcode} // version, flags, stream, opcode
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(body)))
	if _, err := conn.Write(append(frame, body...)); err != nil {
		return 0, nil, err
	}
	var header [9]byte
	if _, err := io.ReadFull(conn, header[:]); err != nil {
		return 0, nil, err
	}
	answer := make([]byte, min(binary.BigEndian.Uint32(header[5:]), 1<<20))
	if _, err := io.ReadFull(conn, answer); err != nil {
		return 0, nil, err
	}
	if header[4] == cqlError {
		r := wire{rest: answer}
		code := r.uint32()
		return 0, nil, fmt.Errorf("error %#x: %s", code, r.text())
	}
	return header[4], answer, nil
}

// cqlName and cqlText quote a name and a string for a statement.
func cqlName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
func cqlText(text string) string { return `'` + strings.ReplaceAll(text, `'`, `''`) + `'` }
