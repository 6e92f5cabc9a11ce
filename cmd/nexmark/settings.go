package main

import (
	"bufio"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// settings fills in the flags that the command line left open: from the
// environment, then from the config file.
func settings(cmd *cobra.Command) error {
	flags := cmd.Flags()
	var failed error
	flags.VisitAll(func(f *pflag.Flag) {
		name := "NEXMARK_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		v, set := os.LookupEnv(name)
		if f.Changed || !set || failed != nil {
			return
		}
		if err := flags.Set(f.Name, v); err != nil {
			failed = usagef("environment: %s: %w", name, err)
		}
	})
	path, err := flags.GetString("config")
	if failed != nil || err != nil || path == "" {
		return failed
	}
	file, err := os.Open(path)
	if err != nil {
		return usagef("config: %w", err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		name, v, ok := strings.Cut(text, "=")
		name, v = strings.TrimSpace(name), strings.Trim(strings.TrimSpace(v), `"`)
		f := flags.Lookup(name)
		switch {
		case !ok:
			return usagef("%s:%d: want name = value", path, n)
		case f == nil:
			return usagef("%s:%d: %s has no setting %q", path, n, cmd.CommandPath(), name)
		case f.Changed:
			continue
		}
		if err := flags.Set(name, v); err != nil {
			return usagef("%s:%d: %w", path, n, err)
		}
	}
	return lines.Err()
}
