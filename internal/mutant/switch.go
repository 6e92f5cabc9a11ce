package mutant

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strings"
)

// Variable is the environment variable that selects the active mutant of a switched tree.
const Variable = "TAILRACE_MUTANT"

// Switched is a file with the original code and some mutants: it has a second copy of each function
// that a mutant changes, and the original function calls the copy if the mutant is active. So one
// build serves all mutants.
type Switched struct {
	file, text string
	fset       *token.FileSet
	parsed     *ast.File
	calls      map[int]string // by the offset of a function's first statement
	copies     []string
}

// NewSwitched returns a file without mutants.
func NewSwitched(file, text string) (*Switched, error) {
	s := &Switched{file: file, text: text, fset: token.NewFileSet(), calls: map[int]string{}}
	var err error
	s.parsed, err = parser.ParseFile(s.fset, file, text, parser.SkipObjectResolution)
	return s, err
}

// CopyName is the file name that the compiler prints in errors about a mutant.
func CopyName(id int) string { return fmt.Sprintf("mutant-%d.go", id) }

// Add adds a mutant's version of the file. It fails if the mutant cannot be switched, for example
// because it changes something other than functions.
func (s *Switched) Add(id int, name, mutated string) error {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, s.file, mutated, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	if len(f.Decls) != len(s.parsed.Decls) {
		return fmt.Errorf("it adds or removes a declaration")
	}
	calls, copies := map[int]string{}, []string(nil)
	for i, d := range f.Decls {
		was := s.parsed.Decls[i]
		offset := func(p token.Pos) int { return fset.Position(p).Offset }
		text := mutated[offset(d.Pos()):offset(d.End())]
		if text == s.text[s.fset.Position(was.Pos()).Offset:s.fset.Position(was.End()).Offset] {
			continue
		}
		fn, ok := d.(*ast.FuncDecl)
		old, isFunc := was.(*ast.FuncDecl)
		if !ok || !isFunc || fn.Body == nil || fn.Name.Name != old.Name.Name || fn.Name.Name == "init" {
			return fmt.Errorf("it changes something else than a function")
		}
		call, err := callOf(old, fmt.Sprintf("%s_mutant%d", fn.Name.Name, id))
		if err != nil {
			return err
		}
		at := offset(fn.Name.Pos()) - offset(fn.Pos())
		copies = append(copies, fmt.Sprintf("//line %s:1\n%s_mutant%d%s\n", CopyName(id), text[:at+len(fn.Name.Name)], id, text[at+len(fn.Name.Name):]))
		calls[s.fset.Position(old.Body.Lbrace).Offset+1] += fmt.Sprintf("\nif switchedMutant == %q {\n%s\n}\n", name, call)
	}
	if len(copies) == 0 {
		return fmt.Errorf("it changes no function")
	}
	for at, call := range calls {
		s.calls[at] += call
	}
	s.copies = append(s.copies, copies...)
	return nil
}

// callOf returns the statements that call a copy of a function with the function's own arguments.
func callOf(fn *ast.FuncDecl, name string) (string, error) {
	var args []string
	for _, p := range fn.Type.Params.List {
		if len(p.Names) == 0 {
			return "", fmt.Errorf("a parameter has no name")
		}
		for _, n := range p.Names {
			if n.Name == "_" {
				return "", fmt.Errorf("a parameter has no name")
			}
			arg := n.Name
			if _, ok := p.Type.(*ast.Ellipsis); ok {
				arg += "..."
			}
			args = append(args, arg)
		}
	}
	if fn.Recv != nil {
		if names := fn.Recv.List[0].Names; len(names) == 0 || names[0].Name == "_" {
			return "", fmt.Errorf("the receiver has no name")
		}
		name = fn.Recv.List[0].Names[0].Name + "." + name
	}
	call := name + "(" + strings.Join(args, ", ") + ")"
	if fn.Type.Results == nil {
		return call + "\nreturn", nil
	}
	return "return " + call, nil
}

// Text returns the present text of the file.
func (s *Switched) Text() string {
	var b strings.Builder
	last := 0
	for at := range len(s.text) + 1 {
		if call, ok := s.calls[at]; ok {
			b.WriteString(s.text[last:at] + call)
			last = at
		}
	}
	b.WriteString(s.text[last:] + "\n")
	for _, c := range s.copies {
		b.WriteString(c)
	}
	return b.String()
}

// SwitchFile returns a file that each package with switched files needs, and its name.
func (s *Switched) SwitchFile() (file, text string) {
	return path.Join(path.Dir(s.file), "switched_mutant.go"), "package " + s.parsed.Name.Name + "\n\nimport \"os\"\n\nvar switchedMutant = os.Getenv(\"" + Variable + "\")\n"
}
