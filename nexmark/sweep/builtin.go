package sweep

import (
	"embed"
	"io/fs"
	"slices"
	"strings"
)

//go:embed specs/*.yaml
var specs embed.FS

// Builtin returns the text of the built-in spec of this name; ok is false if there is none.
func Builtin(name string) (text []byte, ok bool) {
	text, err := specs.ReadFile("specs/" + name + ".yaml")
	return text, err == nil
}

// Builtins lists the names of the built-in specs.
func Builtins() []string {
	files, _ := fs.Glob(specs, "specs/*.yaml") // the pattern is well-formed
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(f, "specs/"), ".yaml"))
	}
	slices.Sort(names)
	return names
}
