package cloudtest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// files returns the text of each file that matches, by its name below the root.
func files(t *testing.T, patterns ...string) map[string]string {
	found := map[string]string{}
	for _, p := range patterns {
		names, err := filepath.Glob(filepath.Join(root, p))
		require.NoError(t, err)
		require.NotEmpty(t, names, p)
		for _, name := range names {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			short, err := filepath.Rel(root, name)
			require.NoError(t, err)
			found[short] = string(text)
		}
	}
	return found
}

// named returns the matches of a pattern's first group in the files, without comments, and where
// they are.
func named(in map[string]string, pattern string) map[string]string {
	found := map[string]string{}
	comments := regexp.MustCompile(`(?m)(^|\s)#.*$`)
	for name, text := range in {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(comments.ReplaceAllString(text, ""), -1) {
			found[m[1]] = name
		}
	}
	return found
}

// lacking returns the names that are used and not declared, each with a file.
func lacking(used, declared map[string]string) (missing []string) {
	for name, file := range used {
		if _, ok := declared[name]; !ok {
			missing = append(missing, name+" ("+file+")")
		}
	}
	slices.Sort(missing)
	return missing
}

// reads matches a script's request for an output of terraform.
const reads = `\boutput -(?:raw|json) (\w+)`

// scripts returns the scripts that read terraform's outputs.
func scripts(t *testing.T) map[string]string {
	return files(t, "scripts/*.sh", "scripts/cluster/*.sh")
}

func TestNamesAreDeclared(t *testing.T) {
	tf := files(t, "terraform/*.tf")
	shell := scripts(t)
	variables := named(tf, `(?m)^variable "(\w+)" \{`)
	outputs := named(tf, `(?m)^output "(\w+)" \{`)
	locals := named(tf, `(?m)^  (\w+) += `)
	require.Empty(t, lacking(named(tf, `\bvar\.(\w+)`), variables), "variables that terraform/ uses")
	require.Empty(t, lacking(named(shell, `\bsetting "?(\w+)"?\)`), variables), "variables that scripts use")
	require.Empty(t, lacking(named(shell, reads), outputs), "outputs that scripts use")
	require.Empty(t, lacking(named(tf, `\blocal\.(\w+)`), locals), "local values")
	require.Empty(t, lacking(variables, named(tf, `\bvar\.(\w+)`)), "unused variables")
	require.NotEmpty(t, named(shell, reads), "the pattern finds nothing any more")

	resources := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^(?:resource|data) "(\w+)" "(\w+)"`).FindAllStringSubmatch(all(tf), -1) {
		resources[m[1]+"."+m[2]] = ""
	}
	require.Empty(t, lacking(named(tf, `\b(aws_\w+\.\w+)`), resources), "resources and data sources")

	// A name that does not exist is noticed.
	shell["made up"] = "x=$(setting storage_number)\nterraform output -raw host_file\n"
	require.Equal(t, []string{"storage_number (made up)"}, lacking(named(shell, `\bsetting "?(\w+)"?\)`), variables))
	require.Equal(t, []string{"host_file (made up)"}, lacking(named(shell, reads), outputs))
}

func all(in map[string]string) string {
	return strings.Join(slices.Collect(maps.Values(in)), "\n")
}

// Each file of templates/ is used, and each template gets the values that it names.
func TestTemplatesAreFilled(t *testing.T) {
	tf := all(files(t, "terraform/*.tf"))
	for name, text := range files(t, "terraform/templates/*.tftpl") {
		base := filepath.Base(name)
		_, call, found := strings.Cut(tf, "templates/"+base+`", {`)
		require.True(t, found, "%s is not used", name)
		given := named(map[string]string{"": call[:strings.Index(call, "})")]}, `(?m)^ +(\w+) += `)
		used := map[string]string{}
		for _, m := range regexp.MustCompile(`[$%]\{ ?([^}]*)\}`).FindAllStringSubmatch(text, -1) {
			for _, word := range regexp.MustCompile(`"[^"]*"|[a-z][a-z_.]*`).FindAllString(m[1], -1) {
				if first, _, _ := strings.Cut(word, "."); !slices.Contains([]string{"for", "in", "if", "endif", "endfor", "join", "h"}, first) && word[0] != '"' {
					used[first] = name
				}
			}
		}
		require.Empty(t, lacking(used, given), name)
		require.Empty(t, lacking(given, used), "given to %s and not used", name)
	}
}

// The services start the programs that the scripts install, from where the disk is mounted.
func TestServices(t *testing.T) {
	disk := file(t, "terraform/templates/disk.sh")
	_, roles, _ := strings.Cut(disk, "for role in ")
	roles, _, _ = strings.Cut(roles, ";")
	for name, text := range files(t, "terraform/templates/units/*.service") {
		role := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(name), "tailrace-"), ".service")
		switch role {
		case "disk", "deadline":
			require.Contains(t, text, "ExecStart=/usr/local/sbin/tailrace-"+role+"\n", name)
			require.NotEmpty(t, file(t, "terraform/templates/"+role+".sh"))
			continue
		case "tailrace@":
			role = "%i"
		default:
			require.Contains(t, strings.Fields(roles), role, "%s: disk.sh makes no directory for it", name)
		}
		for _, line := range []string{
			"Requires=tailrace-disk.service\n", "EnvironmentFile=/etc/tailrace/" + role + ".env\n",
			"WorkingDirectory=/mnt/tailrace/" + role + "\n", "ReadWritePaths=/mnt/tailrace\n", "User=tailrace\n", "NoNewPrivileges=yes\n", "Restart=no\n",
		} {
			require.Contains(t, text, line, name)
		}
	}
	for _, role := range []string{"sequencer", "storage", "manager", "etcd"} {
		require.Contains(t, strings.Fields(roles), role, "tailrace@%s has no directory", role)
	}
}

// The defaults in variables.tf are affordable, and the example agrees with them.
func TestDefaults(t *testing.T) {
	prices := file(t, "terraform/prices.tsv")
	for line := range strings.Lines(prices) {
		if !strings.HasPrefix(line, "#") {
			require.Regexp(t, `^[a-z0-9.-]+\t\d+\.\d+\t\d+\t(amd64|arm64|-)\t\d+\n$`, line)
		}
	}
	defaults := map[string]string{}
	for _, m := range regexp.MustCompile(`(?s)variable "(\w+)" \{.*?\n\}`).FindAllStringSubmatch(file(t, "terraform/variables.tf"), -1) {
		require.Regexp(t, `\n  description = "[^"]+\."\n  type        = `, m[0])
		if d := regexp.MustCompile(`\n  default     = (.*)\n`).FindStringSubmatch(m[0]); d != nil {
			defaults[m[1]] = d[1]
		}
	}
	require.NotContains(t, defaults, "ssh_cidr", "who may log in has no default")
	for name, value := range defaults {
		if strings.HasSuffix(name, "_type") {
			require.Contains(t, prices, "\n"+strings.Trim(value, `"`)+"\t", name)
		}
	}
	example := regexp.MustCompile(`(?m)^# (\w+) += (.*)$`).FindAllStringSubmatch(file(t, "terraform/terraform.tfvars.example"), -1)
	require.NotEmpty(t, example)
	for _, m := range example {
		require.Equal(t, defaults[m[1]], m[2], "terraform.tfvars.example: %s", m[1])
	}
}

// terraform/README.md describes what scripts/terraform-check.sh does.
func TestReadmeCounts(t *testing.T) {
	readme := file(t, "terraform/README.md")
	runs := regexp.MustCompile(`(?m)^run "`).FindAllString(all(files(t, "terraform/tests/*.tftest.hcl")), -1)
	require.Contains(t, readme, fmt.Sprintf("(%d runs)", len(runs)))
	mistakes := regexp.MustCompile(`(?m)^[^#\n].*\t`).FindAllString(file(t, "terraform/tests/mutations.tsv"), -1)
	require.Contains(t, readme, fmt.Sprintf("%d mistakes", len(mistakes)))
}
