package house

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// named holds the names in the tree that a document may use.
type named struct {
	// paths are all files and folders, relative to the root.
	paths map[string]bool
	// tests are the functions that go test runs.
	tests []string
	// flags are the flags of the programs and scripts, without dashes.
	flags map[string]bool
	// methods are the roles' methods, such as "storage/append".
	methods map[string]bool
	// targets are the targets of the Makefile.
	targets map[string]bool
}

// foreign are flags of other programs that documents mention.
var foreign = []string{"help", "brokers"}

var (
	codeSpan   = regexp.MustCompile("`[^`\n]+`")
	fences     = regexp.MustCompile("(?ms)^```.*?^```[ \t]*$")
	link       = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	testName   = regexp.MustCompile(`\b(?:Test|Benchmark|Fuzz|Example)[A-Z]\w*`)
	flagName   = regexp.MustCompile(`(?:^|[\s(\[|])--([a-z][a-z0-9-]*)`)
	pathName   = regexp.MustCompile(`^(?:\./)?[\w.-]+(?:/[\w.-]+)*\.(?:go|sh|md|yaml|tf|proto)$|^(?:\./)?(?:cmd|docs|examples|internal|nexmark|operators|scripts|sequencer|sharedlog|storage|tasks|terraform|tools)(?:/[\w-]+)+$`)
	makeTarget = regexp.MustCompile("(?:^|`|\n)make ([a-z][a-z-]*)")
	scriptFlag = regexp.MustCompile(`--([a-z][a-z0-9-]*)`)
	ruleLine   = regexp.MustCompile(`(?m)^([a-z-]+):`)
)

// tree collects the names in the tree.
func tree(t *testing.T) *named {
	n := &named{paths: map[string]bool{}, flags: map[string]bool{}, methods: map[string]bool{}, targets: map[string]bool{}}
	for _, f := range foreign {
		n.flags[f] = true
	}
	require.NoError(t, filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains([]string{".git", "bin", "dist", "data"}, d.Name()) {
			return filepath.SkipDir
		}
		rel, relErr := filepath.Rel(root, p)
		n.paths[filepath.ToSlash(rel)] = true
		if err != nil {
			return err
		}
		return relErr
	}))
	for _, s := range sources(t) {
		n.read(s)
	}
	files(t, []string{".sh"}, func(_ string, text []byte) {
		for _, m := range scriptFlag.FindAllSubmatch(text, -1) {
			n.flags[string(m[1])] = true
		}
	})
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	for _, m := range ruleLine.FindAllSubmatch(text, -1) {
		n.targets[string(m[1])] = true
	}
	return n
}

// read adds a file's tests, and the names of flags: f.StringVar(&v, "name", …), f.Bool("name", …),
// Option{Flag: "name"}.
func (n *named) read(s *source) {
	for _, d := range s.file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && s.test && f.Recv == nil && testName.MatchString(f.Name.Name) {
			n.tests = append(n.tests, f.Name.Name)
		}
	}
	if s.test {
		return
	}
	ast.Inspect(s.file, func(node ast.Node) bool {
		if l, ok := node.(*ast.BasicLit); ok && l.Kind == token.STRING && pathName.MatchString(strings.Trim(l.Value, `"`)) {
			n.methods[strings.Trim(l.Value, `"`)] = true
		}
		if kv, ok := node.(*ast.KeyValueExpr); ok { // an option of tasks/settings
			key, _ := kv.Key.(*ast.Ident)
			if l, ok := kv.Value.(*ast.BasicLit); ok && key != nil && key.Name == "Flag" && l.Kind == token.STRING {
				n.flags[strings.Trim(l.Value, `"`)] = true
			}
		}
		call, ok := node.(*ast.CallExpr)
		if !ok || len(call.Args) < 3 {
			return true
		}
		for _, a := range call.Args[:2] {
			if l, ok := a.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if v, err := strconv.Unquote(l.Value); err == nil && v != "" {
					n.flags[v] = true
				}
			}
		}
		return true
	})
}

// untrue returns the names in a document that do not exist, with their lines.
func (n *named) untrue(name, text string) (bad []string) {
	say := func(at int, format string, args ...any) {
		bad = append(bad, fmt.Sprintf("%s:%d: ", name, 1+strings.Count(text[:at], "\n"))+fmt.Sprintf(format, args...))
	}
	for _, m := range link.FindAllStringSubmatchIndex(text, -1) {
		to, _, _ := strings.Cut(text[m[2]:m[3]], "#")
		if to == "" || strings.Contains(to, ":") {
			continue
		}
		if p := path.Join(path.Dir(name), to); !n.paths[p] {
			say(m[2], "links to %s, which is not there", p)
		}
	}
	spans := slices.Concat(codeSpan.FindAllStringIndex(fences.ReplaceAllStringFunc(text, blank), -1), fences.FindAllStringIndex(text, -1))
	for _, span := range spans {
		code := text[span[0]:span[1]]
		for _, m := range testName.FindAllStringIndex(code, -1) {
			want := code[m[0]:m[1]]
			more := strings.HasPrefix(code[m[1]:], "…") && slices.ContainsFunc(n.tests, func(have string) bool { return strings.HasPrefix(have, want) })
			if !more && !n.isTest(want) {
				say(span[0], "no test is called %s", want)
			}
		}
		for _, m := range flagName.FindAllStringSubmatch(strings.Trim(code, "`"), -1) {
			if !n.flags[m[1]] {
				say(span[0], "no program has a flag --%s", m[1])
			}
		}
		for _, m := range makeTarget.FindAllStringSubmatch(code, -1) {
			if !n.targets[m[1]] {
				say(span[0], "the Makefile has no target %s", m[1])
			}
		}
		if p := strings.TrimPrefix(strings.Trim(code, "`"), "./"); pathName.MatchString(p) && !n.has(p, path.Dir(name)) {
			say(span[0], "there is no %s", p)
		}
	}
	return bad
}

// has reports whether a path exists: relative to the root, to the document's folder, or as the end
// of a longer path, if the text has given its beginning.
func (n *named) has(p, dir string) bool {
	if n.methods[p] || n.paths[p] || n.paths[path.Join(dir, p)] {
		return true
	}
	for have := range n.paths {
		if strings.HasSuffix(have, "/"+p) {
			return true
		}
	}
	return false
}

func (n *named) isTest(name string) bool { return slices.Contains(n.tests, name) }

// blank replaces everything in a text but its newlines.
func blank(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' {
			return r
		}
		return ' '
	}, text)
}

// Everything that the documents name exists: files, links, tests, flags, make targets. A change
// that renames something must also change the sentences about it.
func TestDocuments(t *testing.T) {
	n := tree(t)
	files(t, []string{".md"}, func(name string, text []byte) {
		for _, bad := range n.untrue(name, string(text)) {
			t.Error(bad)
		}
	})
	for _, s := range sources(t) {
		for _, c := range s.file.Comments {
			for _, name := range testName.FindAllString(c.Text(), -1) {
				if !n.isTest(name) {
					t.Errorf("%s: no test is called %s", s.at(c), name)
				}
			}
		}
	}
	for text, want := range map[string]string{
		"`TestNothingOfTheKind` holds it": "no test is called TestNothingOfTheKind",
		"see `TestNowhere…`":              "no test is called TestNowhere",
		"a\n`run --no-such-flag 3`":       "docs/x.md:2: no program has a flag --no-such-flag",
		"`tasks/nowhere`":                 "there is no tasks/nowhere",
		"`nowhere.go`":                    "there is no nowhere.go",
		"[x](nowhere.md#a)":               "links to docs/nowhere.md",
		"`make nothing-at-all`":           "no target nothing-at-all",
		"```sh\nx --no-such-flag\n```\n":  "--no-such-flag",
	} {
		require.Contains(t, strings.Join(n.untrue("docs/x.md", text), "\n"), want, text)
	}
	for _, text := range []string{"`TestDocuments`", "`TestDocu…`", "`house/docs_test.go`", "`--events N`", "[x](../README.md)", "`make check`", "[x](https://example.com/x)", "a make of cars"} {
		require.Empty(t, n.untrue("docs/x.md", text), text)
	}
}
