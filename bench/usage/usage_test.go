//go:build linux

package usage

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestProcessorTime(t *testing.T) {
	for _, tt := range []struct {
		why, stat string
		want      time.Duration
		good      bool
	}{
		{"user and system", "7 (pushworker) S 1 7 7 0 -1 4 9 0 0 0 250 50 0 0 20 0", 3 * time.Second, true},
		{"a command like fields", "7 (a) S 9 (b) S 1 7 7 0 -1 4 9 0 0 0 1 2 0 0", 30 * time.Millisecond, true},
		{"cut off", "7 (pushworker) S 1 7 7 0 -1 4 9 0 0 0 250", 0, false},
		{"no number", "7 (pushworker) S 1 7 7 0 -1 4 9 0 0 0 x 50 0", 0, false},
		{"empty", "", 0, false},
	} {
		if got, err := cpuOf(tt.stat); got != tt.want || (err == nil) != tt.good {
			t.Errorf("%s: got %v, error %v; want %v", tt.why, got, err, tt.want)
		}
	}
}

// Threads are told by the beginnings of their names, of which Linux keeps 15 characters.
func TestThreads(t *testing.T) {
	folder := t.TempDir()
	const rest = " S 1 7 7 0 -1 4 9 0 0 0 250 50 0 0 20 0"
	for id, stat := range map[string]string{
		"11": "11 (C2 CompilerThre)" + rest, "12": "12 (C1 CompilerThre)" + rest, "13": "13 (data-plane-kafk)" + rest,
		"14": "14 (a C2 Compiler)" + rest, "15": "", // has ended
	} {
		if err := os.Mkdir(filepath.Join(folder, id), 0o700); err != nil {
			t.Fatal(err)
		}
		if stat != "" {
			if err := os.WriteFile(filepath.Join(folder, id, "stat"), []byte(stat), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, err := threads(folder, "C1 Compiler", "C2 Compiler")
	if want := map[int]time.Duration{11: 3 * time.Second, 12: 3 * time.Second}; err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, error %v; want %v", got, err, want)
	}
	if got, err := threads(folder, "data-plane"); err != nil || got[13] != 3*time.Second || len(got) != 1 {
		t.Errorf("another name: %v, error %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(folder, "13", "stat"), []byte("13 (data-plane-kafk) S"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := threads(folder, "data-plane"); err == nil {
		t.Error("what is no stat was read")
	}
}

// Idle and waiting for input is not busy, and guests are counted once.
func TestTheMachine(t *testing.T) {
	if got, err := busyOf("cpu  1 2 4 1000 1000 8 16 32 1000 1000\ncpu0 9"); err != nil || got != 63*tick {
		t.Errorf("got %v, error %v; want %v", got, err, 63*tick)
	}
	if _, err := busyOf("intr 5"); err == nil {
		t.Error("a line that is none was read")
	}
	if got := Others(2*time.Second, 7*time.Second, time.Second, 2*time.Second); got != 2 {
		t.Errorf("got %v others, want 2", got)
	}
	if got := Others(time.Second, time.Second, 2*time.Second); got != 0 {
		t.Errorf("got %v others, want 0: clocks differ by a tick", got)
	}
}

func TestMemory(t *testing.T) {
	status := "Name:\tVmRSS: 1\nVmHWM:\t    3072 kB\nVmRSS:\t    1536 kB\n"
	if got, err := memoryOf(status, "VmRSS:"); err != nil || got != 1.5 {
		t.Errorf("got %v, error %v; want 1.5 MiB", got, err)
	}
	if _, err := memoryOf("Name:\tzombie\n", "VmHWM:"); err == nil {
		t.Error("a process without memory has some")
	}
}

// What Linux says of this process is read, and of one that is not there it is an error.
func TestThisProcess(t *testing.T) {
	now, err := Memory(os.Getpid())
	peak, err2 := PeakMemory(os.Getpid())
	if err != nil || err2 != nil || now <= 0 || peak < now/2 {
		t.Errorf("got %v MiB now and %v at most (%v, %v)", now, peak, err, err2)
	}
	if own, err := OwnCPU(); err != nil || own <= 0 {
		t.Errorf("got %v of our own, error %v", own, err)
	}
	if _, err := CPU(os.Getpid()); err != nil {
		t.Error(err)
	}
	if machine, err := Machine(); err != nil || machine <= 0 {
		t.Errorf("got %v of the machine, error %v", machine, err)
	}
	for what, ask := range map[string]func(int) error{
		"processor time": func(pid int) error { _, err := CPU(pid); return err },
		"threads":        func(pid int) error { _, err := Compilers(pid); return err },
		"memory":         func(pid int) error { _, err := Memory(pid); return err },
	} {
		if err := ask(1 << 30); err == nil || !strings.Contains(err.Error(), what+" of process 1073741824") {
			t.Errorf("%s of a process that is not there: got %v", what, err)
		}
	}
}
