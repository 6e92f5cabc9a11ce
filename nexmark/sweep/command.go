package sweep

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	"tailrace.dev/tailrace/nexmark/workload"
)

// Env says where and with which programs cases are measured.
type Env struct {
	// Nexmark and Tailrace are the programs.
	Nexmark, Tailrace string
	// Log is the address of a given cluster's sequencers; with Submit its workers run the queries.
	// Link are the flags for connecting to it (--cluster, --tls-…).
	Log    string
	Submit bool
	Link   []string
	// Run differs for each sweep. On a given cluster it is part of the job names of checks, because
	// a job that exists already would be resumed.
	Run string
	// Redis says that a redis-server is installed, for the snapshots of a cluster that the sweep
	// starts.
	Redis bool
	// Shared reports whether nexmark run has the setting too; checks use nexmark run.
	Shared func(setting string) bool
}

// Target describes where a case is measured, for people.
func (e *Env) Target(c *Case) string {
	switch {
	case e.Log != "" && e.Submit:
		return "workers of the cluster at " + e.Log
	case e.Log != "":
		return "cluster at " + e.Log
	case c.Workers > 0:
		return "workers of a cluster of processes"
	case c.Replicas > 1:
		return "cluster of processes"
	case c.Kind == LogLatency:
		return "one storage node, a process"
	}
	return "embedded"
}

// Command returns the command line that measures a case and prints its result as JSON. For a check,
// the command writes the answer to output, and for kind timeline the timeline.
func (e *Env) Command(c *Case, output string) []string {
	var args []string
	add := func(flag string, v any) { args = append(args, "--"+flag+"="+fmt.Sprint(v)) }
	if c.Kind == LogLatency && c.Check == 0 {
		args = []string{e.Tailrace, "log", "bench", "latency", "--json"}
		add("rate", c.Rate)
		add("size", c.Bytes)
		add("duration", c.Duration)
		add("warmup", c.Warmup)
		if e.Log != "" {
			args = append(append(args, "--log="+e.Log), logLink(e.Link)...)
		}
		return e.within(c, args)
	}
	args = []string{e.Nexmark, "bench"}
	if c.Check > 0 {
		args[1] = "run"
	}
	if c.Query > 0 {
		add("query", c.Query)
	} else {
		add("workload", c.Workload)
	}
	add("protocol", c.Protocol)
	add("commit-interval", c.CommitInterval)
	if c.Parallelism > 0 {
		add("parallelism", c.Parallelism)
	}
	add("emit", c.Emit)
	add("source", c.Source)
	if c.Check > 0 {
		// Twenty seconds of event time contain a few windows.
		add("events", c.Check)
		add("seed", c.Seed)
		add("event-rate", max(1, c.Check/20))
		add("output", output)
		if e.Log != "" {
			h := fnv.New32a()
			h.Write([]byte(c.Key()))
			add("job", fmt.Sprintf("sweep-%s-%s-%08x", e.Run, c.name(), h.Sum32()))
		}
	} else {
		add("rate", rateText(c.Rate))
		add("warmup", c.Warmup)
		add("duration", c.Duration)
		add("json", "-")
		if c.Kind == Timeline {
			add("timeline", output)
		}
	}
	args = append(args, "--quiet")
	for _, k := range slices.Sorted(maps.Keys(c.Settings)) {
		switch v := c.Settings[k]; {
		case workload.Others(c.name(), k): // a series may have several workloads
		case c.Check > 0 && k == "rescale" && v != "none":
			add("rate", 2*c.Check) // half a second, in which it is rescaled
			add(k, amidst(v, c.Check))
		case c.Check > 0 && k == "balance" && c.balances():
			add("rate", 2*c.Check) // half a second, in which key groups move
			add(k, amidstBalance)
		case c.Check == 0 || e.Shared(k):
			add(k, v)
		}
	}
	if e.Log != "" {
		args = append(append(args, "--log="+e.Log), e.Link...)
	}
	// Append this after the link flags, which may name a store too.
	if c.FailAt > 0 {
		add("fail-at", c.FailAt)
		switch c.Recovery {
		case "none":
			add("checkpoints", "none")
		case "standby":
			add("standbys", 1)
		}
	}
	if (e.Submit || c.Workers > 0) && c.Check == 0 {
		args = append(args, "--submit")
	}
	return e.within(c, args)
}

// logLink turns flags of nexmark into those of tailrace log, which has no state.
func logLink(link []string) (out []string) {
	for _, f := range link {
		name, v, _ := strings.Cut(f, "=")
		switch name {
		case "--checkpoints":
		case "--log-timeout":
			out = append(out, "--timeout="+v)
		default:
			out = append(out, f)
		}
	}
	return out
}

// within wraps a command that needs a cluster in one that starts a cluster, unless one is given.
func (e *Env) within(c *Case, args []string) []string {
	if e.Log != "" || c.Replicas <= 1 && c.Kind != LogLatency && c.Workers == 0 {
		return args
	}
	up := []string{e.Tailrace, "up"}
	if c.Replicas <= 1 {
		up = append(up, "--sequencers=1", "--storage=1")
	}
	if c.Workers > 0 {
		worker := e.Nexmark + " worker"
		if link := c.Settings["link-rate"]; link != "" {
			worker += " --link-rate=" + link
		}
		up = append(up, "--managers=1", "--checkpoints=none", fmt.Sprintf("--workers=%d", c.Workers), "--worker="+worker)
	} else if c.Kind == LogLatency || !e.Redis {
		up = append(up, "--managers=0", "--checkpoints=none")
	} else {
		up = append(up, "--checkpoints=redis")
	}
	return slices.Concat(up, []string{"--"}, args)
}

// CommandText returns the command as a user can type it.
func CommandText(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = a
		if a == "" || strings.ContainsAny(a, " \"'$&;|<>()*?#") {
			quoted[i] = strconv.Quote(a)
		}
	}
	return strings.Join(quoted, " ")
}
