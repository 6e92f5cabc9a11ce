// Command extract reads the argument schema of the AWS provider from an unpacked npm
// package @cdktf/provider-aws, whose sources are generated from that schema, and
// writes the named part of it:
//
//	go run ./extract -package DIR vpc instance data-aws-ami … >provider/aws.json
//
// Each name is a folder below DIR/lib. Names, types, nesting, required or not are
// there; what is not: which optional arguments are computed when left out, defaults,
// which change replaces a resource, and every check the provider makes in code.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"tailrace.dev/tailrace/tools/tfschema/schema"
)

func main() {
	dir := flag.String("package", "", "the unpacked npm package @cdktf/provider-aws")
	flag.Parse()
	if err := run(*dir, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(dir string, names []string) error {
	text, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if err != nil {
		return fmt.Errorf("-package: %w", err)
	}
	var about struct {
		Name, Version string
		Cdktf         struct {
			Provider struct{ Version string }
		}
	}
	if err := json.Unmarshal(text, &about); err != nil {
		return fmt.Errorf("package.json: %w", err)
	}
	s := schema.Provider{
		Source:    fmt.Sprintf("npm %s %s (MPL-2.0): names, types, nesting and which arguments are required", about.Name, about.Version),
		Resources: map[string]*schema.Block{}, Data: map[string]*schema.Block{},
	}
	for _, name := range append([]string{"provider"}, names...) {
		c, err := read(filepath.Join(dir, "lib", name))
		if err != nil {
			return err
		}
		b, err := c.main()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if len(b.Attributes) == 0 {
			return fmt.Errorf("%s: no attributes found: the package is of another form than this program knows", name)
		}
		switch kind := c.find(tfType); {
		case name == "provider":
			s.Provider, s.Version = b, c.find(providerVersion)
		case strings.HasPrefix(name, "data-"):
			s.Data[kind] = b
		default:
			s.Resources[kind] = b
		}
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", " ")
	return out.Encode(s)
}

var (
	tfType          = regexp.MustCompile(`\.tfResourceType = "(\w+)"`)
	providerVersion = regexp.MustCompile(`providerVersion: '([\d.]+)'`)

	// interface NAME { readonly field?: … }: which arguments are required.
	interfaces = regexp.MustCompile(`(?s)export interface (\w+)[^{]*\{(.*?)\n\}`)
	fields     = regexp.MustCompile(`(?m)^    readonly (\w+)(\??):`)

	// Where the arguments of a body are put together: name, value, block or not, type.
	bodies    = regexp.MustCompile(`(?s)\nfunction (\w+)ToHclTerraform\(struct\) \{(.*?)\n\}`)
	mainBody  = regexp.MustCompile(`(?s)\n    synthesizeHclAttributes\(\) \{(.*?)\n    \}`)
	arguments = regexp.MustCompile(`(\w+): \{\s+value: (.*),\s+isBlock: (true|false),\s+type: "(\w+)",\s+storageClassType: "(\w+)",`)
	camel     = regexp.MustCompile(`(?:this\._|struct\.)(\w+)`)
	nested    = regexp.MustCompile(`(?:^|[ (])(\w+)ToHclTerraform\b`)
	many      = regexp.MustCompile(`listMapperHcl\(\w+, (true|false)\)`)

	// What can be read of it: getters of a class, and lists of objects.
	classes = regexp.MustCompile(`(?s)\nclass (\w+) extends cdktf\.(\w+) \{(.*?)\n\}`)
	getters = regexp.MustCompile(`return (cdktf\.Fn\.tolist\()?this\.get(\w+)Attribute\('(\w+)'\)`)
	objects = regexp.MustCompile(`= new (\w+)List\(this, "(\w+)", (true|false)\)`)
)

// code is one resource's two files.
type code struct {
	js       string
	required map[string]map[string]bool // interface → field → required
	bodies   map[string]string          // function → its arguments
	classes  map[string]string
	self     string // the resource's class
}

func read(dir string) (*code, error) {
	js, err := os.ReadFile(filepath.Join(dir, "index.js"))
	if err != nil {
		return nil, err
	}
	types, err := os.ReadFile(filepath.Join(dir, "index.d.ts"))
	if err != nil {
		return nil, err
	}
	c := &code{js: string(js), required: map[string]map[string]bool{}, bodies: map[string]string{}, classes: map[string]string{}}
	for _, m := range interfaces.FindAllStringSubmatch(string(types), -1) {
		c.required[m[1]] = map[string]bool{}
		for _, f := range fields.FindAllStringSubmatch(m[2], -1) {
			c.required[m[1]][f[1]] = f[2] == ""
		}
	}
	for _, m := range bodies.FindAllStringSubmatch(c.js, -1) {
		c.bodies[m[1]] = m[2]
	}
	for _, m := range classes.FindAllStringSubmatch(c.js, -1) {
		c.classes[m[1]] = m[3]
		if strings.HasPrefix(m[2], "Terraform") {
			c.self = m[1]
		}
	}
	return c, nil
}

func (c *code) find(what *regexp.Regexp) string {
	if m := what.FindStringSubmatch(c.js); m != nil {
		return m[1]
	}
	return ""
}

func (c *code) main() (*schema.Block, error) {
	return c.block(c.find(mainBody), c.required[c.self+"Config"], c.classes[c.self])
}

// of returns the body that a function puts together.
func (c *code) of(function string) (*schema.Block, error) {
	text, ok := c.bodies[function]
	if !ok {
		return nil, fmt.Errorf("no function %sToHclTerraform", function)
	}
	name := strings.ToUpper(function[:1]) + function[1:]
	return c.block(text, c.required[name], c.classes[name+"OutputReference"])
}

func (c *code) block(text string, required map[string]bool, class string) (*schema.Block, error) {
	b := &schema.Block{Attributes: map[string]schema.Attribute{}, Blocks: map[string]schema.Nested{}}
	for _, m := range arguments.FindAllStringSubmatch(text, -1) {
		name, value, isBlock, kind, storage := m[1], m[2], m[3] == "true", m[4], m[5]
		field := camel.FindStringSubmatch(value)
		if field == nil {
			return nil, fmt.Errorf("%s: no field in %q", name, value)
		}
		must, known := required[field[1]]
		if rest, get := strings.CutPrefix(field[1], "get"); !known && get { // the package keeps "get" for itself
			must, known = required["fetch"+rest]
		}
		if !known {
			return nil, fmt.Errorf("%s: no field %s in its interface", name, field[1])
		}
		mode := schema.Optional
		if must {
			mode = schema.Required
		}
		if !isBlock {
			t, err := argumentType(kind, storage)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			b.Attributes[name] = schema.Attribute{Type: t, Mode: mode}
			continue
		}
		function := nested.FindStringSubmatch(value)
		mapper := many.FindStringSubmatch(value)
		if mapper != nil {
			function = regexp.MustCompile(`listMapperHcl\((\w+)ToHclTerraform`).FindStringSubmatch(value)
		}
		if function == nil {
			return nil, fmt.Errorf("%s: no function in %q", name, value)
		}
		inner, err := c.of(function[1])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if mapper != nil && mapper[1] == "false" { // an attribute that may be written like blocks
			b.Attributes[name] = schema.Attribute{Type: collection(kind, object(inner)), Mode: mode}
			continue
		}
		n := schema.Nested{Nesting: kind, One: mapper == nil, Required: must, Block: inner}
		if kind == "struct" {
			n.Nesting = "single"
		}
		b.Blocks[name] = n
	}
	c.computed(b, class)
	return b, nil
}

// computed adds what a class can only read.
func (c *code) computed(b *schema.Block, class string) {
	add := func(name string, t json.RawMessage) {
		_, attribute := b.Attributes[name]
		_, block := b.Blocks[name]
		if !attribute && !block {
			b.Attributes[name] = schema.Attribute{Type: t, Mode: schema.Computed}
		}
	}
	for _, m := range getters.FindAllStringSubmatch(class, -1) {
		add(m[3], readType(m[2], m[1] != ""))
	}
	for _, m := range objects.FindAllStringSubmatch(class, -1) {
		inner := &schema.Block{Attributes: map[string]schema.Attribute{}}
		c.computed(inner, c.classes[m[1]+"OutputReference"])
		add(m[2], collection(map[string]string{"true": "set", "false": "list"}[m[3]], object(inner)))
	}
}

func argumentType(kind, storage string) (json.RawMessage, error) {
	element := strings.TrimSuffix(strings.TrimSuffix(storage, "List"), "Map")
	if element == "boolean" {
		element = "bool"
	}
	switch {
	case element != "string" && element != "number" && element != "bool":
		return nil, fmt.Errorf("type %s of %s is not known", kind, storage)
	case kind == "simple":
		return text(element), nil
	default:
		return collection(kind, text(element)), nil
	}
}

func readType(getter string, set bool) json.RawMessage {
	switch getter {
	case "String":
		return text("string")
	case "Number":
		return text("number")
	case "Boolean":
		return text("bool")
	case "StringMap":
		return collection("map", text("string"))
	case "NumberList":
		return collection("list", text("number"))
	}
	if set {
		return collection("set", text("string"))
	}
	return collection("list", text("string"))
}

func text(name string) json.RawMessage { return json.RawMessage(`"` + name + `"`) }

func collection(kind string, element json.RawMessage) json.RawMessage {
	return json.RawMessage(`["` + kind + `",` + string(element) + `]`)
}

func object(b *schema.Block) json.RawMessage {
	types := map[string]json.RawMessage{}
	for name, a := range b.Attributes {
		types[name] = a.Type
	}
	for name, n := range b.Blocks {
		types[name] = collection(n.Nesting, object(n.Block))
	}
	text, err := json.Marshal(types)
	if err != nil {
		panic(err) // invariant: strings and raw JSON made above
	}
	return json.RawMessage(`["object",` + string(text) + `]`)
}
