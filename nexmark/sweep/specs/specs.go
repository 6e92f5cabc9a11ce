// Package specs has the specs of sweeps that the program knows by name.
package specs

import (
	"embed"
	"io/fs"
	"slices"
	"strings"
)

//go:embed *.yaml
var files embed.FS

// Text returns the text of the spec of this name; ok is false if there is none.
func Text(name string) (text []byte, ok bool) {
	text, err := files.ReadFile(name + ".yaml")
	return text, err == nil
}

// Names lists the names of the specs.
func Names() []string {
	list, _ := fs.Glob(files, "*.yaml") // the pattern is well-formed
	var names []string
	for _, f := range list {
		names = append(names, strings.TrimSuffix(f, ".yaml"))
	}
	slices.Sort(names)
	return names
}
