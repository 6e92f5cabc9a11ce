package mutant

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const switchable = `package main

import "fmt"

type T struct{ n int }

// Add adds.
func (t *T) Add(more ...int) (sum int) {
	for _, m := range more {
		t.n += m
	}
	return t.n
}

func show(a int, b string) { fmt.Println(a, b) }

func hidden(int) int { return 1 }

const one = 1

func main() {
	t := &T{}
	show(t.Add(1, 2), "x")
}
`

// A switched program behaves as the original, or as any of its mutants.
func TestSwitched(t *testing.T) {
	dir := t.TempDir()
	s, err := NewSwitched("main.go", switchable)
	require.NoError(t, err)
	add := func(id int, name, old, new string) error {
		require.Contains(t, switchable, old)
		return s.Add(id, name, strings.Replace(switchable, old, new, 1))
	}
	require.NoError(t, add(1, "minus", "t.n += m", "t.n -= m"))
	require.NoError(t, add(2, "last", "return t.n\n", "return more[1]\n"))
	require.NoError(t, add(3, "swapped", "fmt.Println(a, b)", "fmt.Println(b, a)"))
	require.NoError(t, add(4, "head", `func show(a int, b string) { fmt`, "func show(a int, b string) { a = 7; fmt"))
	require.ErrorContains(t, add(5, "constant", "const one = 1", "const one = 2"), "something else than a function")
	require.ErrorContains(t, add(6, "unnamed", "return 1", "return 2"), "has no name")
	require.ErrorContains(t, s.Add(7, "nothing", switchable), "changes no function")
	require.Error(t, s.Add(8, "torn", switchable[:200]))
	name, text := s.SwitchFile()
	for file, text := range map[string]string{"main.go": s.Text(), name: text, "go.mod": "module example.com/x\n\ngo 1.26\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
	}
	build := exec.Command("go", "build", "-o", "x", ".")
	build.Dir = dir
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s\n%s", out, s.Text())
	for on, want := range map[string]string{"": "3 x\n", "minus": "-3 x\n", "last": "2 x\n", "swapped": "x 3\n", "head": "7 x\n", "constant": "3 x\n"} {
		cmd := exec.Command(filepath.Join(dir, "x"))
		cmd.Env = append(os.Environ(), Variable+"="+on)
		out, err := cmd.Output()
		require.NoError(t, err)
		require.Equal(t, want, string(out), on)
	}
}
