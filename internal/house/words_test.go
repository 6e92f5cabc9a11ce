package house

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// retired is a row of the table "Words that are not used" in docs/GLOSSARY.md.
type retired struct {
	// words are the row's words and phrases, in lower case.
	words []string
	// instead says what to write.
	instead string
	// names and documents say where the words are banned.
	names, documents bool
}

const retiredHeading = "## Words that are not used\n"

var (
	retiredWord = regexp.MustCompile("`([^`]+)`")
	wordOfName  = regexp.MustCompile(`[A-Z]+(?:[a-z0-9]+)?|[a-z0-9]+`)
	goFile      = regexp.MustCompile(`\w+\.go\b`)
	linkTarget  = regexp.MustCompile(`\]\([^)\s]*\)`)
)

// retiredWords reads the table of a glossary.
func retiredWords(glossary string) (all []retired, err error) {
	_, table, ok := strings.Cut(glossary, retiredHeading)
	if !ok {
		return nil, fmt.Errorf("there is no heading %q", strings.TrimSpace(retiredHeading))
	}
	table, _, _ = strings.Cut(table, "\n## ")
	for _, line := range strings.Split(table, "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != 3 || !strings.Contains(cells[0], "`") {
			continue
		}
		r := retired{instead: strings.TrimSpace(cells[1])}
		for _, m := range retiredWord.FindAllStringSubmatch(cells[0], -1) {
			r.words = append(r.words, strings.ToLower(m[1]))
		}
		for _, where := range strings.Split(cells[2], ",") {
			switch strings.TrimSpace(where) {
			case "names":
				r.names = true
			case "documents":
				r.documents = true
			default:
				return nil, fmt.Errorf("%q: the third column has names, documents, or both", line)
			}
		}
		all = append(all, r)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the table below %q has no rows", strings.TrimSpace(retiredHeading))
	}
	return all, nil
}

// has returns the words of the row that a text contains, whose words have one space between them.
func (r *retired) has(text string) (found []string) {
	text = " " + text + " "
	for _, w := range r.words {
		if strings.Contains(text, " "+w+" ") {
			found = append(found, w)
		}
	}
	return found
}

// wordsOf returns the words of a name, in lower case: `let go` of letGo.
func wordsOf(name string) string {
	return strings.ToLower(strings.Join(wordOfName.FindAllString(name, -1), " "))
}

// plainText returns the words of a document, in lower case, without code and the targets of links.
func plainText(text string) string {
	text = fences.ReplaceAllString(text, "")
	text = codeSpan.ReplaceAllString(text, "")
	text = linkTarget.ReplaceAllString(text, "]")
	return strings.Join(strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	}), " ")
}

// nameJudge finds retired words in names. It judges each name once: most occur many times.
type nameJudge struct {
	all    []retired
	judged map[string][]string
}

func (j *nameJudge) has(name string) []string {
	found, ok := j.judged[name]
	if !ok {
		words := wordsOf(name)
		for i := range j.all {
			if j.all[i].names {
				found = append(found, j.all[i].has(words)...)
			}
		}
		j.judged[name] = found
	}
	return found
}

// in returns the retired words in the names of a Go file, each with a name that has it.
func (j *nameJudge) in(s *source) map[string]string {
	bad := map[string]string{}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			for _, w := range j.has(id.Name) {
				bad[w] = fmt.Sprintf("%s: name %s", s.at(id), id.Name)
			}
		}
		return true
	})
	return bad
}

// commented returns the words that are banned in documents and that the comments of a Go file use,
// each with a place.
func commented(s *source, all []retired) map[string]string {
	bad := map[string]string{}
	for _, g := range s.file.Comments {
		var prose []string
		for line := range strings.Lines(g.Text()) {
			if !strings.HasPrefix(line, "\t") { // code
				prose = append(prose, line)
			}
		}
		text := plainText(goFile.ReplaceAllString(strings.Join(prose, ""), ""))
		for i := range all {
			if all[i].documents {
				for _, w := range all[i].has(text) {
					bad[w] = s.at(g)
				}
			}
		}
	}
	return bad
}

// exceptions reads lines of a path and words: where words are still in use.
func exceptions(text string) map[string][]string {
	m := map[string][]string{}
	for _, line := range strings.Split(text, "\n") {
		if name, words, ok := strings.Cut(line, ": "); ok && !strings.HasPrefix(line, "#") {
			for _, w := range strings.Split(words, ",") {
				m[name] = append(m[name], strings.TrimSpace(w))
			}
		}
	}
	return m
}

// Neither names nor comments nor documents use the words that docs/GLOSSARY.md retires.
// testdata/words.txt lists the files that still do; it may only shrink.
func TestRetiredWords(t *testing.T) {
	glossary, err := os.ReadFile(filepath.Join(root, "docs", "GLOSSARY.md"))
	require.NoError(t, err)
	all, err := retiredWords(string(glossary))
	require.NoError(t, err, "docs/GLOSSARY.md")
	text, err := os.ReadFile(filepath.Join("testdata", "words.txt"))
	require.NoError(t, err)
	left := exceptions(string(text))
	judge := func(file, word, at string) {
		if i := slices.Index(left[file], word); i >= 0 {
			left[file] = slices.Delete(left[file], i, i+1)
			return
		}
		i := slices.IndexFunc(all, func(r retired) bool { return slices.Contains(r.words, word) })
		t.Errorf("%s: %q is not used any more, write: %s (docs/GLOSSARY.md)", at, word, all[i].instead)
	}
	names := &nameJudge{all, map[string][]string{}}
	for _, s := range sources(t) {
		if s.generated {
			continue
		}
		for word, at := range names.in(s) {
			judge(s.path, word, at)
		}
		for word, at := range commented(s, all) {
			judge(s.path, word, at)
		}
	}
	files(t, []string{".md"}, func(name string, text []byte) {
		if strings.HasPrefix(name, "docs/lab/") {
			return // reports of the past are not rewritten
		}
		if before, _, ok := strings.Cut(string(text), retiredHeading); ok {
			text = []byte(before)
		}
		words := plainText(string(text))
		for i := range all {
			if all[i].documents {
				for _, w := range all[i].has(words) {
					judge(name, w, name)
				}
			}
		}
	})
	for name, words := range left {
		if len(words) > 0 {
			t.Errorf("internal/house/testdata/words.txt: %s does not use %s any more, remove it there", name, strings.Join(words, ", "))
		}
	}
}

func TestRetiredWordsAreFound(t *testing.T) {
	all, err := retiredWords("# G\n\n" + retiredHeading + "\n| not | instead | in |\n| --- | --- | --- |\n| `fate`, `let go` | outcome | names, documents |\n| `begun` | started | documents |\n")
	require.NoError(t, err)
	require.Len(t, all, 2)
	s := parse(t, "x.go", []byte("package x\n\ntype fateOf struct{ letGo, fateful, begun int }\n"))
	bad := (&nameJudge{all, map[string][]string{}}).in(s)
	require.Len(t, bad, 2)
	require.Equal(t, "x.go:3: name fateOf", bad["fate"])
	require.Equal(t, "x.go:3: name letGo", bad["let go"])

	s = parse(t, "x.go", []byte("package x\n\n// It was begun, and let\n// go; `fate`.\n//\n//\tfate 3\nvar x int // fated\n"))
	require.Equal(t, map[string]string{"begun": "x.go:3", "let go": "x.go:3"}, commented(s, all))
	require.Empty(t, commented(parse(t, "x.go", []byte("package x\n\n// let.go is a file.\nvar x int\n")), all))

	words := plainText("It was *begun*, and let\ngo. `fate`, [a](fate.md)\n\n```\nfate\n```\n")
	require.Equal(t, []string{"let go"}, all[0].has(words))
	require.Equal(t, []string{"begun"}, all[1].has(words))
	require.Equal(t, map[string][]string{"a/b.go": {"fate", "let go"}}, exceptions("# c: d\n\na/b.go: fate, let go\n"))

	_, err = retiredWords("# G\n")
	require.ErrorContains(t, err, "no heading")
	_, err = retiredWords(retiredHeading + "\nno table\n")
	require.ErrorContains(t, err, "no rows")
	_, err = retiredWords(retiredHeading + "| `a` | b | everywhere |\n")
	require.ErrorContains(t, err, "third column")
}
