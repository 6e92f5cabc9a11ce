package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/mutant"
)

// A tree of two functions, of which one is tested, and the outcomes of mistakes in them.
func TestPlay(t *testing.T) {
	src := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":     "module example.com/x\n\ngo 1.26\n",
		"x.go":       "package x\n\nfunc Tested() int {\n\treturn 1\n}\n\nfunc Hidden() int {\n\treturn 2\n}\n",
		"x_test.go":  "package x\n\nimport \"testing\"\n\nfunc TestX(t *testing.T) {\n\tt.Run(\"one\", func(t *testing.T) {\n\t\tif Tested() != 1 {\n\t\t\tt.Fatal(\"found: after 3 seeds\")\n\t\t}\n\t})\n}\n",
		"ignored":    "",
		".gitignore": "/ignored\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(src, name), []byte(text), 0o644))
	}
	require.NoError(t, exec.Command("git", "-C", src, "init", "-q").Run())
	r := &runner{root: src, tree: filepath.Join(t.TempDir(), "tree"), limit: time.Minute, sound: map[string]error{}}
	require.NoError(t, copyTree(t.Context(), src, r.tree))
	require.NoFileExists(t, filepath.Join(r.tree, "ignored"))
	before, err := os.ReadFile(filepath.Join(r.tree, "x.go"))
	require.NoError(t, err)

	list, err := mutant.Parse("l", `mutant: a
file: x.go
breaks: one
-return 1
+return 3

mutant: b
file: x.go
breaks: two
-return 2
+return 3

mutant: c
file: x.go
breaks: c
-return 2
+return "3"

mutant: d
file: x.go
breaks: d
-return 4
+return 3

mutant: e
file: x.go
breaks: e
equivalent: so it is
-return 1
+return 0 + 1
`)
	require.NoError(t, err)
	var all []*mutant.Mutant
	for i, want := range []result{
		{Outcome: killed, By: "TestX/one", Found: "after 3 seeds"},
		{Outcome: survived},
		{Outcome: uncompiled},
		{Outcome: stale, By: "mutant d: x.go: it has no such lines: \"return 4\""},
		{Outcome: equivalent, By: "so it is"},
	} {
		res, err := r.play(t.Context(), &list[i])
		require.NoError(t, err)
		require.Equal(t, want, result{Outcome: res.Outcome, By: res.By, Found: res.Found}, list[i].Name)
		all = append(all, &list[i])
	}
	after, err := os.ReadFile(filepath.Join(r.tree, "x.go"))
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))

	// All mutants in one tree, except those that cannot be switched.
	both, err := r.build(t.Context(), all)
	require.NoError(t, err)
	require.Equal(t, map[int]string{2: "it does not compile", 3: "mutant d: x.go: it has no such lines: \"return 4\"", 4: "equivalent"}, both.apart)
	for i, want := range []result{{Outcome: killed, By: "TestX/one", Found: "after 3 seeds"}, {Outcome: survived}} {
		res, err := both.play(t.Context(), i)
		require.NoError(t, err)
		require.Equal(t, want, result{Outcome: res.Outcome, By: res.By, Found: res.Found}, list[i].Name)
	}

	// Tests that fail without a mutant prove nothing.
	require.NoError(t, os.WriteFile(filepath.Join(r.tree, "x.go"), []byte("package x\n\nfunc Tested() int {\n\treturn 5\n}\n\nfunc Hidden() int {\n\treturn 2\n}\n"), 0o644))
	clear(r.sound)
	res, err := r.play(t.Context(), &list[1])
	require.NoError(t, err)
	require.Equal(t, unsound, res.Outcome)
	require.Equal(t, "TestX/one fails without a mutant", res.By)
}
