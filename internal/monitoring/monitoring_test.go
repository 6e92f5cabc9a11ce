package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func promtool(t *testing.T, args ...string) {
	t.Helper()
	tool, err := exec.LookPath("promtool")
	require.NoError(t, err, "install it: scripts/setup.sh (Debian, Ubuntu: package prometheus)")
	cmd := exec.Command(tool, args...)
	cmd.Dir = dir()
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

type rule struct {
	Alert       string            `yaml:"alert"`
	Record      string            `yaml:"record"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Labels      map[string]string `yaml:"labels,omitempty"`
	Annotations map[string]string `yaml:"annotations,omitempty"`
}

type group struct {
	Name  string `yaml:"name"`
	Rules []rule `yaml:"rules"`
}

type ruleFile struct {
	Groups []group `yaml:"groups"`
}

func rules(t *testing.T) []rule {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir(), "rules.yaml"))
	require.NoError(t, err)
	var f ruleFile
	require.NoError(t, yaml.Unmarshal(b, &f))
	var all []rule
	for _, g := range f.Groups {
		all = append(all, g.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

var ours = regexp.MustCompile(`tailrace_\w+`)

// unknown returns the names in an expression that are not in metrics.txt.
func unknown(t *testing.T, expr string) []string {
	t.Helper()
	all, err := listed()
	require.NoError(t, err)
	var bad []string
	for _, name := range ours.FindAllString(expr, -1) {
		if !slices.ContainsFunc(all, func(m metric) bool { return m.name == name }) {
			bad = append(bad, name)
		}
	}
	return bad
}

func TestRules(t *testing.T) {
	promtool(t, "check", "rules", "rules.yaml")
	promtool(t, "check", "config", "--syntax-only", "prometheus.yaml")
	operations, err := os.ReadFile(filepath.Join(dir(), "../../docs/operations.md"))
	require.NoError(t, err)
	for _, r := range rules(t) {
		require.Empty(t, unknown(t, r.Expr), r.Alert)
		require.Contains(t, []string{"page", "ticket"}, r.Labels["severity"], r.Alert)
		require.NotEmpty(t, r.Annotations["summary"], r.Alert)
		require.NotEmpty(t, r.Annotations["action"], "%s: what does an operator do?", r.Alert)
		require.True(t, strings.Contains(string(operations), "`"+r.Alert+"`"), "%s: docs/operations.md lists every alert", r.Alert)
	}
}

// Every alert has series for which it fires, and series for which it does not.
func TestAlertsFire(t *testing.T) {
	promtool(t, "test", "rules", "rules_test.yaml")
	b, err := os.ReadFile(filepath.Join(dir(), "rules_test.yaml"))
	require.NoError(t, err)
	var f struct {
		Tests []struct {
			Alerts []struct {
				Name string `yaml:"alertname"`
				Exp  []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		} `yaml:"tests"`
	}
	require.NoError(t, yaml.Unmarshal(b, &f))
	fires, rests := map[string]bool{}, map[string]bool{}
	for _, test := range f.Tests {
		for _, a := range test.Alerts {
			if len(a.Exp) > 0 {
				fires[a.Name] = true
			} else {
				rests[a.Name] = true
			}
		}
	}
	for _, r := range rules(t) {
		require.True(t, fires[r.Alert], "%s: no series in rules_test.yaml under which it fires", r.Alert)
		require.True(t, rests[r.Alert], "%s: no series in rules_test.yaml under which it does not", r.Alert)
	}
}

type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	GridPos     struct{ X, Y, W, H int }
	Datasource  struct{ UID string }
	FieldConfig struct{ Defaults struct{ Unit string } }
	Targets     []struct{ Expr, LegendFormat, RefID string }
}

// The board can be imported: panels have distinct places and numbers, expressions parse, and all
// metrics exist.
func TestBoard(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(dir(), "board.json"))
	require.NoError(t, err)
	var board struct {
		UID, Title string
		Panels     []panel
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
	}
	require.NoError(t, json.Unmarshal(b, &board))
	require.NotEmpty(t, board.UID)
	require.NotEmpty(t, board.Title)
	variables := map[string]bool{"__rate_interval": true, "__range": true}
	for _, v := range board.Templating.List {
		variables[v.Name] = true
	}
	ids := map[int]string{}
	var exprs ruleFile
	exprs.Groups = []group{{Name: "board"}}
	for i, p := range board.Panels {
		require.NotContains(t, ids, p.ID, "%q and %q have the same id", p.Title, ids[p.ID])
		ids[p.ID] = p.Title
		g := p.GridPos
		require.True(t, g.W > 0 && g.H > 0 && g.X >= 0 && g.Y >= 0 && g.X+g.W <= 24, "%q: its place %+v", p.Title, g)
		for _, o := range board.Panels[:i] {
			h := o.GridPos
			require.False(t, g.X < h.X+h.W && h.X < g.X+g.W && g.Y < h.Y+h.H && h.Y < g.Y+g.H, "%q lies on %q", p.Title, o.Title)
		}
		if p.Type == "row" {
			continue
		}
		require.NotEmpty(t, p.Title)
		require.NotEmpty(t, p.Description, "%q: what does it show, and when does one worry?", p.Title)
		require.NotEmpty(t, p.FieldConfig.Defaults.Unit, "%q: its unit", p.Title)
		require.Equal(t, "${datasource}", p.Datasource.UID, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		refs := map[string]bool{}
		for _, target := range p.Targets {
			require.False(t, refs[target.RefID], "%q: target %q is there twice", p.Title, target.RefID)
			refs[target.RefID] = true
			require.Empty(t, unknown(t, target.Expr), p.Title)
			require.Contains(t, target.Expr, `cluster=~"$cluster"`, p.Title)
			for _, v := range regexp.MustCompile(`\$\{?(\w+)`).FindAllStringSubmatch(target.Expr, -1) {
				require.True(t, variables[v[1]], "%q: there is no variable %s", p.Title, v[1])
			}
			expr := strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h").Replace(target.Expr)
			exprs.Groups[0].Rules = append(exprs.Groups[0].Rules, rule{Record: fmt.Sprintf("board:panel_%d:%s", p.ID, target.RefID), Expr: expr})
		}
	}
	require.NotEmpty(t, exprs.Groups[0].Rules)
	text, err := yaml.Marshal(exprs)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "board.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o644))
	promtool(t, "check", "rules", file)
}

func TestCompare(t *testing.T) {
	all, err := listed()
	require.NoError(t, err)
	var text strings.Builder
	for _, m := range all {
		if !strings.HasPrefix(m.name, "tailrace_storage_") || m.optional {
			continue
		}
		var labels []string
		for _, l := range m.labels {
			labels = append(labels, l+`="x"`)
		}
		fmt.Fprintf(&text, "# TYPE %s gauge\n%s{%s} 1\n", m.name, m.name, strings.Join(labels, ","))
	}
	bad, err := Compare("tailrace_storage_", text.String())
	require.NoError(t, err)
	require.Empty(t, bad)
	bad, err = Compare("tailrace_storage_", strings.Replace(text.String(), "tailrace_storage_disk_bytes{}", `tailrace_storage_disks_bytes{a="b"}`, 1))
	require.NoError(t, err)
	require.Equal(t, []string{"tailrace_storage_disks_bytes is served but not in metrics.txt", "tailrace_storage_disk_bytes is in metrics.txt but not served"}, bad)
	bad, err = Compare("tailrace_storage_", strings.Replace(text.String(), "tailrace_storage_disk_bytes{}", `tailrace_storage_disk_bytes{a="b"}`, 1))
	require.NoError(t, err)
	require.Equal(t, []string{"tailrace_storage_disk_bytes has the labels [a], metrics.txt says []"}, bad)
}
