package terminal

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/term"
)

// Keys reads single keys from the terminal of the process, whatever its standard input
// is. Until Close, keys are not shown and make no signal: Ctrl-C is a key (3), and lines
// that are printed must end with "\r\n".
type Keys struct {
	tty *os.File
	was *term.State
}

// OpenKeys takes the terminal over. The error says that there is none.
func OpenKeys() (*Keys, error) {
	// Not blocking, so that Close ends a Next that waits.
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the terminal: %w", err)
	}
	was, err := term.MakeRaw(fd(tty))
	if err != nil {
		_ = tty.Close()
		return nil, fmt.Errorf("taking over the terminal: %w", err)
	}
	return &Keys{tty, was}, nil
}

// fd is a file's descriptor. Fd would make the file block again.
func fd(f *os.File) (n int) {
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(d uintptr) { n = int(d) })
	}
	return n
}

// Next waits for a key. The error comes from Close or the terminal.
func (k *Keys) Next() (byte, error) {
	var one [1]byte
	if _, err := k.tty.Read(one[:]); err != nil {
		return 0, fmt.Errorf("reading a key: %w", err)
	}
	return one[0], nil
}

// Close gives the terminal back. It may be called while Next waits.
func (k *Keys) Close() {
	_ = term.Restore(fd(k.tty), k.was)
	_ = k.tty.Close()
}

// Size is how many columns and rows a terminal has; 80 and 24 if it does not say.
func Size(f *os.File) (columns, rows int) {
	columns, rows, err := term.GetSize(int(f.Fd()))
	if err != nil || columns < 1 || rows < 1 {
		return 80, 24
	}
	return columns, rows
}
