package sysinfo

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// Host is the machine that measured. A field is empty if the operating system does not report it.
type Host struct {
	Name   string  `json:"name"`
	Cores  int     `json:"cores"`
	CPU    string  `json:"cpu"`
	Kernel string  `json:"kernel"`
	Memory int64   `json:"memory_bytes"`
	Load   float64 `json:"load_before"` // the load average of the minute before the measurement
}

// ThisHost asks the operating system (Linux: /proc).
func ThisHost() Host {
	h := Host{Cores: runtime.NumCPU(), Kernel: runtime.GOOS + " " + word("/proc/sys/kernel/osrelease", 0)}
	h.Name, _ = os.Hostname() // empty is fine: only people read it
	h.CPU = runtime.GOARCH
	if v := field("/proc/cpuinfo", "model name"); v != "" {
		h.CPU = v
	}
	kb, _ := strconv.ParseInt(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"), 10, 64)
	h.Memory = kb << 10
	h.Load, _ = strconv.ParseFloat(word("/proc/loadavg", 0), 64)
	return h
}

func word(path string, n int) string {
	b, err := os.ReadFile(path)
	if f := strings.Fields(string(b)); err == nil && n < len(f) {
		return f[n]
	}
	return ""
}

// field returns the value of the first line "name : value".
func field(path, name string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// Program is the program that was measured.
type Program struct {
	Commit string `json:"commit"`
	Go     string `json:"go"`
}

// ThisProgram describes the build of this program. If the build does not contain the commit
// (-buildvcs=false), git reports it; git runs a git command in the clone.
func ThisProgram(git func(args ...string) (string, error)) Program {
	p := Program{Commit: "unknown", Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return p
	}
	p.Commit = info.Main.Version
	changed, stamped := false, false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			p.Commit, stamped = s.Value, true
		case "vcs.modified":
			changed = s.Value == "true"
		}
	}
	if !stamped {
		// The clone's commit is the program's if the program was just built from it.
		if head, err := git("rev-parse", "HEAD"); err == nil {
			p.Commit = head + " (of the clone; the build has no stamp)"
			status, err := git("status", "--porcelain")
			changed = err == nil && status != ""
		}
	}
	if changed {
		p.Commit += " with changes"
	}
	return p
}
