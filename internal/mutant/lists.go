package mutant

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// List is one file of mutants; its name is the file's, without folder and suffix.
type List struct {
	Name    string
	File    string // relative to the root, with slashes
	Mutants []Mutant
}

// Lists reads all lists below a root.
func Lists(root string) ([]List, error) {
	const dir = "internal/mutant/lists"
	entries, err := os.ReadDir(filepath.Join(root, filepath.FromSlash(dir)))
	if err != nil {
		return nil, err
	}
	var all []List
	var errs []error
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".txt")
		if !ok {
			continue
		}
		l := List{Name: name, File: path.Join(dir, e.Name())}
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(l.File)))
		if err != nil {
			return nil, err
		}
		l.Mutants, err = Parse(l.File, string(text))
		errs = append(errs, err)
		all = append(all, l)
	}
	return all, errors.Join(errs...)
}
