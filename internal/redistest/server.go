package redistest

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"tailrace.dev/tailrace/internal/porttest"
)

// T is the part of a test that the package needs.
type T interface {
	Errorf(format string, args ...any)
	FailNow()
	Cleanup(f func())
	TempDir() string
}

// Server is a redis-server for a test.
type Server struct {
	t    T
	addr string
	args []string
	cmd  *exec.Cmd
	out  string
}

// Start starts a server with an append-only file, fsynced every second. args are additional
// settings. The server ends with the test.
func Start(t T, args ...string) *Server {
	dir := t.TempDir()
	s := &Server{t: t, addr: porttest.Hold(t, 1)[0], out: filepath.Join(dir, "out")}
	_, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		fatal(t, "%v", err)
	}
	s.args = append([]string{
		"--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "yes", "--appendfsync", "everysec",
	}, args...)
	if !contains(args, "--tls-port") {
		s.args = append(s.args, "--port", port)
	}
	for i, a := range s.args {
		if a == "PORT" {
			s.args[i] = port
		}
	}
	s.Restart()
	t.Cleanup(s.Kill)
	return s
}

func contains(args []string, s string) bool {
	for _, a := range args {
		if a == s {
			return true
		}
	}
	return false
}

func fatal(t T, format string, args ...any) {
	t.Errorf(format, args...)
	t.FailNow()
}

// Address returns host:port.
func (s *Server) Address() string { return s.addr }

// URL returns the URL of the server for a client without a password.
func (s *Server) URL() string { return "redis://" + s.Address() }

// Restart starts the server again after Kill, and waits until it listens.
func (s *Server) Restart() {
	out, err := os.OpenFile(s.out, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		fatal(s.t, "%v", err)
	}
	defer out.Close()
	s.cmd = exec.Command("redis-server", s.args...)
	s.cmd.Stdout, s.cmd.Stderr = out, out
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		fatal(s.t, "redis-server: %v; scripts/setup.sh installs it", err)
	}
	for until := time.Now().Add(20 * time.Second); ; {
		c, err := net.Dial("tcp", s.Address())
		if err == nil {
			_ = c.Close()
			return
		}
		if time.Now().After(until) {
			said, _ := os.ReadFile(s.out)
			fatal(s.t, "redis-server does not listen at %s: %v\n%s", s.Address(), err, said)
		}
		time.Sleep(5 * time.Millisecond) // poll: there is no notification
	}
}

// Kill ends the server with SIGKILL and waits for its end.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}

// Pause stops the server without ending it (SIGSTOP) until Continue.
func (s *Server) Pause() { _ = s.cmd.Process.Signal(syscall.SIGSTOP) }

// Continue ends a Pause.
func (s *Server) Continue() { _ = s.cmd.Process.Signal(syscall.SIGCONT) }
