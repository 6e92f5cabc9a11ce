// Command provider is a Terraform provider that knows the argument schema of
// hashicorp/aws (aws.json, see command extract) and nothing else. With it
// `terraform validate` finds what is misspelt, missing or of the wrong type, and
// `terraform test` runs under mock_provider, where the real provider cannot be had.
// It plans and creates nothing: asked to, it says so.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/hashicorp/terraform-plugin-go/tfprotov5/tf5server"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"tailrace.dev/tailrace/tools/tfschema/schema"
)

//go:embed aws.json
var aws []byte

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	var s schema.Provider
	if err := json.Unmarshal(aws, &s); err != nil {
		return fmt.Errorf("aws.json: %w", err)
	}
	if slices.Equal(os.Args[1:], []string{"-version"}) { // which folder of a mirror it belongs into
		_, err := fmt.Println(s.Version)
		return err
	}
	answer, err := convert(s)
	if err != nil {
		return fmt.Errorf("aws.json: %w", err)
	}
	return tf5server.Serve("registry.terraform.io/hashicorp/aws", func() tfprotov5.ProviderServer {
		return &provider{schema: answer}
	})
}

func convert(s schema.Provider) (*tfprotov5.GetProviderSchemaResponse, error) {
	answer := &tfprotov5.GetProviderSchemaResponse{
		ResourceSchemas: map[string]*tfprotov5.Schema{}, DataSourceSchemas: map[string]*tfprotov5.Schema{},
	}
	b, err := block(s.Provider)
	if err != nil {
		return nil, fmt.Errorf("provider: %w", err)
	}
	answer.Provider = &tfprotov5.Schema{Block: b}
	for _, part := range []struct {
		from map[string]*schema.Block
		to   map[string]*tfprotov5.Schema
	}{{s.Resources, answer.ResourceSchemas}, {s.Data, answer.DataSourceSchemas}} {
		for name, from := range part.from {
			if b, err = block(from); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			part.to[name] = &tfprotov5.Schema{Block: b}
		}
	}
	return answer, nil
}

func block(from *schema.Block) (*tfprotov5.SchemaBlock, error) {
	b := &tfprotov5.SchemaBlock{}
	for name, a := range from.Attributes {
		t, err := tftypes.ParseJSONType(a.Type) //nolint:staticcheck // the notation of Terraform's own schema files
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		b.Attributes = append(b.Attributes, &tfprotov5.SchemaAttribute{
			Name: name, Type: t, Required: a.Mode == schema.Required,
			Optional: a.Mode == schema.Optional, Computed: a.Mode != schema.Required,
		})
	}
	for name, n := range from.Blocks {
		inner, err := block(n.Block)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		nested := &tfprotov5.SchemaNestedBlock{TypeName: name, Block: inner}
		switch n.Nesting {
		case "single":
			nested.Nesting = tfprotov5.SchemaNestedBlockNestingModeSingle
		case "set":
			nested.Nesting = tfprotov5.SchemaNestedBlockNestingModeSet
		default:
			nested.Nesting = tfprotov5.SchemaNestedBlockNestingModeList
		}
		if nested.Nesting != tfprotov5.SchemaNestedBlockNestingModeSingle {
			if n.One {
				nested.MaxItems = 1
			}
			if n.Required {
				nested.MinItems = 1
			}
		}
		b.BlockTypes = append(b.BlockTypes, nested)
	}
	return b, nil
}

// provider answers what validating asks; ProviderServer is nil: Terraform asks
// nothing else under mock_provider.
type provider struct {
	tfprotov5.ProviderServer
	schema *tfprotov5.GetProviderSchemaResponse
}

var errSchemaOnly = errors.New("this stand-in for hashicorp/aws knows the argument schema only: run terraform validate, or terraform test with mock_provider; for anything else let terraform init fetch the real provider")

func (*provider) GetMetadata(context.Context, *tfprotov5.GetMetadataRequest) (*tfprotov5.GetMetadataResponse, error) {
	return &tfprotov5.GetMetadataResponse{}, nil
}

func (p *provider) GetProviderSchema(context.Context, *tfprotov5.GetProviderSchemaRequest) (*tfprotov5.GetProviderSchemaResponse, error) {
	return p.schema, nil
}

func (*provider) GetResourceIdentitySchemas(context.Context, *tfprotov5.GetResourceIdentitySchemasRequest) (*tfprotov5.GetResourceIdentitySchemasResponse, error) {
	return &tfprotov5.GetResourceIdentitySchemasResponse{}, nil
}

func (*provider) PrepareProviderConfig(_ context.Context, r *tfprotov5.PrepareProviderConfigRequest) (*tfprotov5.PrepareProviderConfigResponse, error) {
	return &tfprotov5.PrepareProviderConfigResponse{PreparedConfig: r.Config}, nil
}

func (p *provider) ValidateResourceTypeConfig(_ context.Context, r *tfprotov5.ValidateResourceTypeConfigRequest) (*tfprotov5.ValidateResourceTypeConfigResponse, error) {
	wrong, err := setButComputed(p.schema.ResourceSchemas[r.TypeName], r.Config)
	return &tfprotov5.ValidateResourceTypeConfigResponse{Diagnostics: wrong}, err
}

// setButComputed finds values for what cannot be set: Terraform itself leaves that to
// the provider, all else of the schema it checks alone.
func setButComputed(s *tfprotov5.Schema, config *tfprotov5.DynamicValue) (wrong []*tfprotov5.Diagnostic, err error) {
	v, err := config.Unmarshal(s.ValueType())
	if err != nil {
		return nil, err
	}
	var given map[string]tftypes.Value
	if err := v.As(&given); err != nil {
		return nil, err
	}
	for _, a := range s.Block.Attributes {
		if a.Computed && !a.Optional && !given[a.Name].IsNull() {
			wrong = append(wrong, &tfprotov5.Diagnostic{
				Severity: tfprotov5.DiagnosticSeverityError, Summary: "Value for unconfigurable attribute",
				Detail:    fmt.Sprintf("%q is decided by the provider and cannot be set.", a.Name),
				Attribute: tftypes.NewAttributePath().WithAttributeName(a.Name),
			})
		}
	}
	return wrong, nil
}

func (p *provider) ValidateDataSourceConfig(_ context.Context, r *tfprotov5.ValidateDataSourceConfigRequest) (*tfprotov5.ValidateDataSourceConfigResponse, error) {
	wrong, err := setButComputed(p.schema.DataSourceSchemas[r.TypeName], r.Config)
	return &tfprotov5.ValidateDataSourceConfigResponse{Diagnostics: wrong}, err
}

func (*provider) ConfigureProvider(context.Context, *tfprotov5.ConfigureProviderRequest) (*tfprotov5.ConfigureProviderResponse, error) {
	return nil, errSchemaOnly
}

func (*provider) StopProvider(context.Context, *tfprotov5.StopProviderRequest) (*tfprotov5.StopProviderResponse, error) {
	return &tfprotov5.StopProviderResponse{}, nil
}
