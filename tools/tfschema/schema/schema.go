// Package schema is the form in which the argument schema of a Terraform provider is
// kept: aws.json, which command extract writes and command provider serves.
package schema

import "encoding/json"

// Provider is the schema of some of a provider's resources and data sources.
type Provider struct {
	Source    string            `json:"source"` // what it was read from
	Version   string            `json:"version"`
	Provider  *Block            `json:"provider"`
	Resources map[string]*Block `json:"resources"`
	Data      map[string]*Block `json:"data"`
}

// Block is the body of a resource, a data source, the provider or a nested block.
type Block struct {
	Attributes map[string]Attribute `json:"attributes"`
	Blocks     map[string]Nested    `json:"blocks,omitempty"`
}

// Attribute is one argument or one computed value.
type Attribute struct {
	Type json.RawMessage `json:"type"` // "string", ["list","string"], ["object",{…}]: cty's own notation
	Mode Mode            `json:"mode"`
}

// Mode says who gives an attribute its value.
type Mode string

const (
	Required Mode = "required"
	// Optional is "optional, and computed if left out": what the provider says of the
	// second half is lost in the package the schema is read from.
	Optional Mode = "optional"
	Computed Mode = "computed" // it cannot be set
)

// Nested is a block inside a block.
type Nested struct {
	Nesting  string `json:"nesting"` // list, set or single
	One      bool   `json:"one,omitempty"`
	Required bool   `json:"required,omitempty"`
	Block    *Block `json:"block"`
}
