package build

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// stamp is set by the linker (scripts/release.sh): the version, then commit, time, and dirty or
// clean, separated by commas. The Go command would record these by itself, but not in a git
// worktree.
var stamp string

// Info identifies a build. Two binaries whose Infos differ only in Platform come from the same
// sources, unless Modified.
type Info struct {
	// Version is the release's name, or the commit if there is none, or dev.
	Version string `json:"version"`
	// Commit is the full hash, and Time the time of the commit (RFC 3339, UTC); both are empty if
	// the Go command knew no commit.
	Commit string `json:"commit,omitempty"`
	Time   string `json:"time,omitempty"`
	// Modified means that the tree had uncommitted changes.
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Read returns the Info of the running program.
func Read() Info {
	i := Info{Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if b, ok := debug.ReadBuildInfo(); ok {
		i.fill(b.Settings)
	}
	i.name(stamp)
	return i
}

// Version is the short form, for logs and registrations.
func Version() string { return Read().Version }

func (i *Info) fill(settings []debug.BuildSetting) {
	for _, s := range settings {
		switch s.Key {
		case "vcs.revision":
			i.Commit = s.Value
		case "vcs.modified":
			i.Modified = s.Value == "true"
		case "vcs.time":
			if t, err := time.Parse(time.RFC3339, s.Value); err == nil {
				i.Time = t.UTC().Format(time.RFC3339)
			}
		}
	}
}

func (i *Info) name(stamp string) {
	words := strings.Split(stamp, ",")
	if len(words) == 4 {
		i.Commit, i.Time, i.Modified = words[1], words[2], words[3] == "dirty"
	}
	switch {
	case words[0] != "":
		i.Version = words[0]
	case i.Commit == "":
		i.Version = "dev"
	default:
		i.Version = i.Commit[:min(12, len(i.Commit))]
		if i.Modified {
			i.Version += "-dirty"
		}
	}
}

// Print writes one line of text, or one of JSON.
func (i Info) Print(w io.Writer, program string, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(i)
	}
	line := program + " " + i.Version
	if i.Commit != "" {
		line += fmt.Sprintf(", commit %s of %s", i.Commit[:min(12, len(i.Commit))], i.Time)
	}
	if i.Modified {
		line += " with changes"
	}
	_, err := fmt.Fprintf(w, "%s, %s, %s\n", line, i.Go, i.Platform)
	return err
}
